import { expect, test } from "vitest";
import { createPeerPodSource, createPeerServiceSource } from "../../../src/discovery/index.ts";
import { createPeerRig, pod, podCollection, slice, sliceCollection } from "./rig.ts";

/** Those of a source. */
const maxPeers = 4_096;

function createServiceRig(port: number | string | undefined = undefined) {
  const rig = createPeerRig((ports) => createPeerServiceSource(ports, { namespace: "ai", service: "vllm", port }));
  rig.api.serve(sliceCollection);
  return {
    ...rig,
    put: (...slices: readonly ReturnType<typeof slice>[]) => {
      for (const one of slices) rig.api.put(sliceCollection, one);
    },
    latest: () => rig.recorder.lists.at(-1),
  };
}

test("the endpoints of all slices of the service are routers, each once, as they come and go", async () => {
  const { start, put, latest, api, settle, recorder, source } = createServiceRig();
  put(slice("b", ["10.0.0.3", "10.0.0.1"]), slice("a", ["10.0.0.1", "10.0.0.2"]));
  put(slice("other", ["10.0.0.9"], { metadata: { name: "other", labels: { "kubernetes.io/service-name": "other" } } }));
  await start();
  expect(source.name).toBe("service ai/vllm");
  expect(recorder.lists).toEqual(["", "10.0.0.1:8000 10.0.0.2:8000 10.0.0.3:8000"]);
  put(slice("b", ["10.0.0.4"]));
  await settle();
  expect(latest()).toBe("10.0.0.1:8000 10.0.0.2:8000 10.0.0.4:8000");
  api.remove(sliceCollection, "a");
  await settle();
  expect(latest()).toBe("10.0.0.4:8000");
  api.remove(sliceCollection, "b");
  await settle();
  expect([latest(), recorder.errors]).toEqual(["", []]);
});

test("a router that is not ready counts, for it has not met the others; one that terminates does not", async () => {
  const { start, put, latest } = createServiceRig();
  const endpoints = [
    { addresses: ["10.0.0.1"] },
    { addresses: ["10.0.0.2"], conditions: { ready: false } },
    { addresses: ["10.0.0.3"], conditions: { ready: true, terminating: false } },
    { addresses: ["10.0.0.4"], conditions: { ready: false, serving: true, terminating: true } },
    { addresses: ["10.0.0.5"], conditions: { ready: true, terminating: true } },
    { addresses: ["host.example"] },
    "nonsense",
  ];
  put(slice("a", [], { endpoints }));
  await start();
  expect(latest()).toBe("10.0.0.1:8000 10.0.0.2:8000 10.0.0.3:8000");
});

test.each([
  [undefined, "10.0.0.1:8000"],
  ["mesh", "10.0.0.1:7946"],
  [7_000, "10.0.0.1:7000"],
  ["absent", ""],
])("with port %s the router is %j", async (port, expected) => {
  const { start, put, latest } = createServiceRig(port);
  const ports = [
    { name: "http", port: 8_000 },
    { name: "mesh", port: 7_946 },
  ];
  put(slice("a", ["10.0.0.1"], { ports }));
  await start();
  expect(latest()).toBe(expected);
});

test("of a service with addresses of both families the IPv4 ones count; of IPv6 alone, those, in brackets", async () => {
  const { start, put, latest, api, settle } = createServiceRig();
  put(slice("a", ["fd00::1"], { addressType: "IPv6" }), slice("b", ["10.0.0.1"]));
  await start();
  expect(latest()).toBe("10.0.0.1:8000");
  api.remove(sliceCollection, "b");
  await settle();
  expect(latest()).toBe("[fd00::1]:8000");
});

test("a change that brings no other routers is not told", async () => {
  const { start, put, recorder, settle } = createServiceRig();
  put(slice("a", ["10.0.0.1"]));
  await start();
  put(slice("b", ["10.0.0.1"]));
  await settle();
  expect(recorder.lists).toEqual(["", "10.0.0.1:8000"]);
});

test("an API server that fails keeps the list, is reported once, and reported as back", async () => {
  const { start, put, api, settle, latest, recorder, watch, messages } = createServiceRig();
  put(slice("a", ["10.0.0.1"]));
  await start();
  for (let at = 0; at < 100; at++) {
    api.faults.list.push({ status: 403 });
    api.faults.watch.push("drop");
  }
  api.compact();
  watch(sliceCollection).end();
  put(slice("a", ["10.0.0.2"]));
  await settle(60_000);
  expect(latest()).toBe("10.0.0.1:8000");
  expect(messages().filter((text) => text.includes("status 403"))).toHaveLength(1);
  expect(recorder.recoveries).toBe(0);
  api.faults.list.length = 0;
  api.faults.watch.length = 0;
  await settle(120_000);
  expect([latest(), recorder.recoveries]).toEqual(["10.0.0.2:8000", 1]);
});

test("4,096 routers of a source are told; one more is left out, and that is over when there is room", async () => {
  const { start, put, recorder, messages, settle } = createServiceRig();
  const many = Array.from({ length: maxPeers }, (_, at) => `10.0.${at >> 8}.${at & 255}`);
  put(slice("a", many), slice("b", ["10.1.0.1"]));
  await start();
  expect(recorder.specs.at(-1)).toHaveLength(maxPeers);
  expect(messages()).toEqual(["service ai/vllm: more than 4096 routers; the rest is ignored"]);
  put(slice("b", []));
  await settle();
  expect(recorder.recoveries).toBe(1);
});

test("pods of a selector are routers while they run, ready or not, and until they are deleted", async () => {
  const rig = createPeerRig((ports) =>
    createPeerPodSource(ports, { namespace: "ai", selector: "app=vllm", port: "http" }),
  );
  const { api, recorder, settle, source } = rig;
  api.serve(podCollection);
  api.put(podCollection, pod("a", { ip: "10.0.0.1" }));
  api.put(podCollection, pod("b", { ip: "10.0.0.2", ready: false }));
  api.put(podCollection, pod("c", { ip: "10.0.0.3", phase: "Pending" }));
  api.put(podCollection, pod("d", { phase: "Running" }));
  api.put(podCollection, pod("e", { ip: "10.0.0.5", metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" } }));
  api.put(podCollection, pod("f", { ip: "10.0.0.6", spec: { containers: [] } }));
  await rig.start();
  expect(source.name).toBe("pods ai/app=vllm");
  expect(recorder.lists).toEqual(["", "10.0.0.1:8000 10.0.0.2:8000"]);
  api.put(podCollection, pod("c", { ip: "10.0.0.3" }));
  api.remove(podCollection, "a");
  await settle();
  expect(recorder.lists.at(-1)).toBe("10.0.0.2:8000 10.0.0.3:8000");
  expect(Object.fromEntries(api.requests[0]!.query)).toMatchObject({ labelSelector: "app=vllm" });
});
