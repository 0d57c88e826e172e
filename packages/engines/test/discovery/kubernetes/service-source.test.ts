import { expect, test } from "vitest";
import { createServiceSource, type ServiceSourceOptions } from "../../../src/discovery/index.ts";
import { plainTraits } from "../helpers.ts";
import { createKubernetesRig, slice, sliceCollection } from "./rig.ts";

const options: ServiceSourceOptions = {
  ...{ namespace: "ai", service: "vllm", port: undefined, family: "auto", traits: plainTraits },
};

function createRig(more: Partial<ServiceSourceOptions> = {}) {
  const rig = createKubernetesRig((ports, logger) => createServiceSource(ports, { ...options, logger, ...more }));
  rig.api.serve(sliceCollection);
  return {
    ...rig,
    put: (...slices: readonly ReturnType<typeof slice>[]) => {
      for (const one of slices) rig.api.put(sliceCollection, one);
    },
    latest: () => rig.recorder.lists.at(-1),
  };
}

test("the endpoints of all slices of the service are engines, and those of other services are not", async () => {
  const { start, put, latest, api, recorder } = createRig();
  put(slice("vllm-b", ["10.0.0.3", "10.0.0.2"]), slice("vllm-a", ["10.0.0.1"]));
  put(slice("other", ["10.0.0.9"], { metadata: { name: "other", labels: { "kubernetes.io/service-name": "other" } } }));
  await start();
  expect(latest()).toBe("10.0.0.1:8000 10.0.0.2:8000 10.0.0.3:8000");
  expect(recorder.specs.at(-1)?.[0]).toEqual({
    ...{ id: "10.0.0.1:8000", url: "http://10.0.0.1:8000", models: [], role: "both", weight: 1, ranks: 1, labels: {} },
  });
  const [list, watch] = api.requests;
  expect(Object.fromEntries(list!.query)).toEqual({ labelSelector: "kubernetes.io/service-name=vllm", limit: "250" });
  expect(Object.fromEntries(watch!.query)).toMatchObject({
    ...{ labelSelector: "kubernetes.io/service-name=vllm", watch: "1", allowWatchBookmarks: "true" },
    ...{ timeoutSeconds: "60", resourceVersion: "1003" },
  });
});

test("endpoints join and leave as slices change, come and go", async () => {
  const { start, put, latest, api, settle, recorder } = createRig();
  await start();
  expect(recorder.lists).toEqual([""]);
  put(slice("a", ["10.0.0.1"]));
  await settle();
  put(slice("a", ["10.0.0.1", "10.0.0.2"]), slice("b", ["10.0.0.3"]));
  await settle();
  expect(latest()).toBe("10.0.0.1:8000 10.0.0.2:8000 10.0.0.3:8000");
  api.remove(sliceCollection, "a");
  await settle();
  expect(latest()).toBe("10.0.0.3:8000");
  expect(recorder.errors).toEqual([]);
});

test("only what is ready and not terminating counts; what is not said counts as ready", async () => {
  const { start, put, latest } = createRig();
  const endpoint = (host: number, conditions?: object) => ({
    addresses: [`10.0.0.${host}`],
    ...(conditions ? { conditions } : {}),
  });
  const endpoints = [
    endpoint(1),
    endpoint(2, {}),
    endpoint(3, { ready: true, serving: true, terminating: false }),
    endpoint(4, { ready: false }),
    endpoint(5, { ready: false, serving: true, terminating: true }),
    // A service that publishes what is not ready calls terminating endpoints ready.
    endpoint(6, { ready: true, serving: false, terminating: true }),
    { addresses: [] },
    { addresses: ["host.example"] },
    "nonsense",
  ];
  put(slice("a", [], { endpoints }));
  await start();
  expect(latest()).toBe("10.0.0.1:8000 10.0.0.2:8000 10.0.0.3:8000");
});

test.each([
  [undefined, "10.0.0.1:8000"],
  ["metrics", "10.0.0.1:9000"],
  [7_000, "10.0.0.1:7000"],
  ["absent", ""],
] as const)("the port %s leads to %s", async (port, expected) => {
  const { start, put, latest } = createRig({ port });
  put(
    slice("a", ["10.0.0.1"], {
      ports: [
        { name: "http", port: 8_000 },
        { name: "metrics", port: 9_000 },
      ],
    }),
  );
  await start();
  expect(latest()).toBe(expected);
});

test.each([
  ["auto", "10.0.0.1:8000"],
  ["ipv4", "10.0.0.1:8000"],
  ["ipv6", "[fd00::1]:8000"],
] as const)("an engine with addresses of both families is one engine: %s", async (family, expected) => {
  const { start, put, latest, api, settle } = createRig({ family });
  put(slice("four", ["10.0.0.1"]), slice("six", ["fd00::1"], { addressType: "IPv6" }));
  put(slice("names", ["host.example"], { addressType: "FQDN" }));
  await start();
  expect(latest()).toBe(expected);
  api.remove(sliceCollection, "four");
  await settle();
  expect(latest()).toBe(family === "ipv4" ? "" : "[fd00::1]:8000");
});

test("an endpoint that two slices have for a moment counts once", async () => {
  const { start, put, latest } = createRig();
  put(slice("a", ["10.0.0.1", "10.0.0.2"]), slice("b", ["10.0.0.2", "10.0.0.3"]));
  await start();
  expect(latest()).toBe("10.0.0.1:8000 10.0.0.2:8000 10.0.0.3:8000");
});

test("labels of the service, which its slices have, and the place of an endpoint describe its engine", async () => {
  const { start, put, recorder } = createRig({ traits: { ...plainTraits, labels: { tier: "gold" } } });
  const metadata = {
    name: "a",
    labels: { "kubernetes.io/service-name": "vllm", "espalier.dev/role": "prefill", "espalier.dev/weight": "2.5" },
  };
  const targetRef = { kind: "Pod", name: "vllm-0", namespace: "ai" };
  put(slice("a", [], { metadata, endpoints: [{ addresses: ["10.0.0.1"], nodeName: "n1", zone: "z1", targetRef }] }));
  await start();
  expect(recorder.specs.at(-1)).toMatchObject([
    {
      ...{ role: "prefill", weight: 2.5 },
      labels: {
        ...{ tier: "gold", "k8s.pod.name": "vllm-0", "k8s.namespace.name": "ai" },
        ...{ "k8s.node.name": "n1", "cloud.availability_zone": "z1" },
      },
    },
  ]);
});

test("an endpoint's zone is its engine's region where none is said", async () => {
  const endpoints = [{ addresses: ["10.0.0.1"], zone: "z1" }];
  for (const region of [undefined, "eu"]) {
    const { start, put, recorder } = createRig({ traits: { ...plainTraits, region } });
    put(slice("a", [], { endpoints }));
    await start();
    expect(recorder.specs.at(-1)?.map((spec) => spec.region)).toEqual([region ?? "z1"]);
  }
});

test("a change that says nothing new of engines is not passed on", async () => {
  const { start, put, settle, recorder } = createRig();
  put(slice("a", ["10.0.0.1"]));
  await start();
  put(slice("a", ["10.0.0.1"], { generation: 7 }), slice("b", []));
  await settle();
  expect(recorder.lists).toEqual(["", "10.0.0.1:8000"]);
});

test("4,096 endpoints are engines; one more is left out, and that is over when there is room", async () => {
  const { start, put, settle, recorder, messages } = createRig();
  const many = (name: string, count: number, third: number) =>
    slice(
      name,
      Array.from({ length: count }, (_, at) => `10.${third}.${at >> 8}.${at & 255}`),
    );
  for (const at of [0, 1, 2, 3]) put(many(`s${at}`, 1_024, at));
  await start();
  expect(recorder.specs.at(-1)).toHaveLength(4_096);
  expect(messages()).toEqual([]);
  put(slice("z", ["10.9.0.1"]));
  await settle();
  expect(messages()).toEqual(["service ai/vllm: more than 4096 engines; the rest is ignored"]);
  expect(recorder.lists).toHaveLength(2);
  put(many("s0", 1_023, 0));
  await settle();
  expect(recorder.lists.at(-1)).toContain("10.9.0.1:8000");
  expect(recorder.recoveries).toBe(1);
});

test("of one slice 4,096 endpoints are read and no more", async () => {
  const { start, put, recorder } = createRig();
  put(
    slice(
      "a",
      Array.from({ length: 4_097 }, (_, at) => `10.0.${at >> 8}.${at & 255}`),
    ),
  );
  await start();
  expect(recorder.specs.at(-1)).toHaveLength(4_096);
  expect(recorder.lists.at(-1)).not.toContain("10.0.16.0:8000");
});
