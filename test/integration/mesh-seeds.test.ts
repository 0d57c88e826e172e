import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type ApiObject, createKubernetesApi, startDnsServer, waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import type { Json } from "./client.ts";
import { serveApi } from "./kubernetes-server.ts";
import { addressOf, joinRouter, meshOf, untilLinked } from "./mesh-rig.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const timeout = 60_000;
const deadlineMs = 30_000;

/** A router without engines, whose peers are where `mesh` says. */
const start = (at: number, mesh: Json, config: Json = {}): Promise<RunningRouter> =>
  joinRouter(rig, undefined, [], { tokenizes: false, config, mesh: { "router-id": `router-${at}`, ...mesh } });

const portOf = (router: RunningRouter): number => Number(addressOf(router).split(":").at(-1));

const isUp = async (router: RunningRouter, source: string): Promise<boolean> =>
  (await router.metrics()).sum("espalier_mesh_seed_source_up", { source }) === 1;

/** How often a router has met itself. */
const meetingsOf = async (router: RunningRouter): Promise<number> =>
  (await router.metrics()).sum("espalier_mesh_rejects_total", { reason: "self" });

test("routers find each other by SRV records, in which each finds itself as well", { timeout }, async () => {
  const dns = await startDnsServer();
  rig.own(() => dns.stop());
  const name = "_mesh._tcp.routers.test";
  dns.set("host.test", { a: ["127.0.0.1"] });
  const routers: RunningRouter[] = [];
  const publish = () => dns.set(name, { srv: routers.map((router) => ({ name: "host.test", port: portOf(router) })) });
  for (let at = 0; at < 3; at++) {
    routers.push(await start(at, { seeds: [name], "seed-servers": [dns.address] }));
    publish();
  }
  await untilLinked(routers);
  for (const [at, router] of routers.entries()) {
    // The first one may have asked before there was an answer.
    await waitFor(() => isUp(router, `dns ${name}`), { what: "answered question", deadlineMs });
    expect(await meetingsOf(router)).toBe(0);
    const others = [0, 1, 2].filter((other) => other !== at).map((other) => `router-${other}`);
    expect((await meshOf(router)).members.map((member) => member.router).sort()).toEqual(others);
  }
});

test("routers find each other by a file that is swapped, and by hosts at name servers of their own", {
  timeout,
}, async () => {
  const folder = await mkdtemp(join(tmpdir(), "espalier-seeds-"));
  rig.own(() => rm(folder, { recursive: true, force: true }));
  const path = join(folder, "seeds.yaml");
  const publish = async (...seeds: readonly string[]): Promise<void> => {
    await writeFile(`${path}.new`, JSON.stringify({ seeds }));
    await rename(`${path}.new`, path);
  };
  const dns = await startDnsServer();
  rig.own(() => dns.stop());
  await publish();
  const first = await start(0, { "seeds-file": path, "seed-servers": [dns.address] });
  const second = await start(1, {});
  const own = addressOf(first);
  dns.set("second.test", { a: ["127.0.0.1"] });
  await publish(own, `second.test:${portOf(second)}`);
  await untilLinked([first, second]);
  expect(await meetingsOf(first)).toBe(0);
  const third = await start(2, {});
  await publish(addressOf(third));
  await untilLinked([first, second, third]);
  expect(await isUp(first, `file ${path}`)).toBe(true);
});

test("routers find each other by the endpoints of their service and by their pods, ready or not", {
  timeout,
}, async () => {
  const api = createKubernetesApi();
  const slices = "/apis/discovery.k8s.io/v1/namespaces/ai/endpointslices";
  const pods = "/api/v1/namespaces/ai/pods";
  for (const collection of [slices, pods]) api.serve(collection);
  const discovery = { kubernetes: { "api-server": await serveApi(rig, api) } };
  const sliceOf = (router: RunningRouter): ApiObject => ({
    metadata: { name: `slice-${portOf(router)}`, labels: { "kubernetes.io/service-name": "peers" } },
    addressType: "IPv4",
    ports: [{ name: "mesh", port: portOf(router) }],
    endpoints: [{ addresses: ["127.0.0.1"], conditions: { ready: false } }],
  });
  const podOf = (router: RunningRouter): ApiObject => ({
    metadata: { name: `pod-${portOf(router)}`, namespace: "ai", labels: { app: "espalier" } },
    spec: { containers: [{ ports: [{ name: "mesh", containerPort: portOf(router) }] }] },
    status: { phase: "Running", podIP: "127.0.0.1" },
  });
  const first = await start(0, { "seed-services": ["ai/peers:mesh"] }, { discovery });
  const second = await start(1, {});
  api.put(slices, sliceOf(first));
  api.put(slices, sliceOf(second));
  await untilLinked([first, second]);

  api.put(pods, podOf(second));
  const seedPods = [{ namespace: "ai", selector: "app=espalier", "port-name": "mesh" }];
  const third = await start(2, { "seed-pods": seedPods }, { discovery });
  await untilLinked([first, second, third]);

  // What the API server does not say, the routers still know of each other.
  api.remove(slices, sliceOf(second).metadata.name);
  for (let at = 0; at < 100; at++) api.faults.list.push({ status: 403 });
  api.compact();
  for (const watch of [...api.watches]) watch.end();
  await waitFor(async () => !(await isUp(first, "service ai/peers")), { what: "failure", deadlineMs });
  const { members } = await meshOf(first);
  expect(members.map(({ router, isLinked }) => [router, isLinked]).sort()).toEqual([
    ["router-1", true],
    ["router-2", true],
  ]);
});
