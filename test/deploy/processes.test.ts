import { expect, test } from "vitest";
import { filesIn } from "./files.ts";
import { readManifests } from "./manifests.ts";

/** Of a quantity as Kubernetes writes it. */
function mebibytes(quantity: string): number {
  const [, count, unit] = /^(\d+)(Mi|Gi)$/.exec(quantity) ?? [];
  return Number(count) * (unit === "Gi" ? 1_024 : 1);
}

/** Those of gateways and autoscalers have no routers, and in those of other pickers the pods are other charts'. */
const routers = filesIn("deploy/kubernetes", ".yaml").filter((path) => !/\/(gateways|pickers|scaling)\//.test(path));

test.each(routers)("%s: every process has its ports, and its share of the machine", (path) => {
  const { find, container, compile } = readManifests(path);
  const { processes, admin, mesh, endpointPicker } = compile();
  const count = processes as number;
  const portsOf = (first: string, number: number) =>
    Array.from({ length: count }, (_, at) => ({
      name: at === 0 ? first : `${first}-${at + 1}`,
      number: number + at,
    }));
  const own = [
    ...portsOf("admin", admin.port),
    ...(container.ports.some((port) => port.name === "mesh") ? portsOf("mesh", mesh.port) : []),
  ];
  const known = container.ports.map((port) => ({ name: port.name, number: port.containerPort }));
  // Health checks of the picker are the kubelet's alone: no Service has their port.
  const picked = endpointPicker ? [{ name: "ext-proc", number: endpointPicker.port }] : [];
  const checked = endpointPicker ? portsOf("health", endpointPicker.healthPort) : [];
  const served = [...picked, { name: "http", number: 8080 }, ...own];
  expect(known).toEqual([{ name: "http", number: 8080 }, ...own, ...picked, ...checked]);
  const named = served.map((port) => port.name);
  expect(find("Service").flatMap(({ spec }) => spec.ports.map(({ targetPort }) => targetPort))).toEqual(named);
  const [policy] = find("NetworkPolicy");
  expect(policy!.spec.ingress.flatMap(({ ports }) => ports.map(({ port }) => port)).sort()).toEqual([...named].sort());
  for (const { spec } of find("ServiceMonitor"))
    expect(spec.endpoints.map(({ port }) => port)).toEqual(portsOf("admin", 0).map((port) => port.name));
  const { requests, limits } = container.resources;
  expect(Number(requests.cpu)).toBeGreaterThanOrEqual(count);
  expect(mebibytes(requests.memory)).toBeGreaterThanOrEqual(512 * count);
  expect(mebibytes(limits.memory)).toBeGreaterThanOrEqual(2_048 * count);
});
