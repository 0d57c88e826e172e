import type { ApiObject } from "@espalier/testing";
import { expect, test } from "vitest";
import { createInferencePoolSource } from "../../../src/discovery/index.ts";
import { plainTraits } from "../helpers.ts";
import { alphaPoolCollection, createKubernetesRig, pod, podCollection, poolCollection } from "./rig.ts";

function createRig() {
  const rig = createKubernetesRig((ports, logger) =>
    createInferencePoolSource(ports, { namespace: "ai", pool: "chat", traits: plainTraits, logger }),
  );
  rig.api.serve(podCollection);
  rig.api.put(podCollection, pod("a", { ip: "10.0.0.1" }));
  rig.api.put(podCollection, pod("b", { ip: "10.0.0.2", labels: { tier: "gold" } }));
  rig.api.put(podCollection, pod("c", { ip: "10.0.0.3", labels: { app: "other" } }));
  return { ...rig, latest: () => rig.recorder.lists.at(-1) };
}

/** As v1 has it. */
const pool = (labels: object, ...ports: readonly number[]): ApiObject => ({
  metadata: { name: "chat" },
  spec: { selector: { matchLabels: labels }, targetPorts: ports.map((number) => ({ number })) },
});

/** As v1alpha2 has it. */
const alphaPool = (selector: object, targetPortNumber: number): ApiObject => ({
  metadata: { name: "chat" },
  spec: { selector, targetPortNumber },
});

const minute = 60_000;

test("the pods that a pool selects are engines, one for each target port", async () => {
  const { start, api, latest, messages } = createRig();
  api.put(poolCollection, pool({ app: "vllm" }, 8_000, 8_001));
  api.put(poolCollection, { ...pool({ app: "other" }, 9_000), metadata: { name: "another" } });
  await start();
  expect(latest()).toBe("10.0.0.1:8000 10.0.0.1:8001 10.0.0.2:8000 10.0.0.2:8001");
  expect(messages()).toEqual([]);
  expect(api.requests[0]?.query.get("fieldSelector")).toBe("metadata.name=chat");
});

test.each(["not served", "without the pool"])("where v1 is %s, v1alpha2 counts", async (how) => {
  const { start, api, latest, messages } = createRig();
  if (how === "without the pool") api.serve(poolCollection);
  api.put(alphaPoolCollection, alphaPool({ app: "vllm", tier: "gold" }, 8_000));
  await start();
  expect(latest()).toBe("10.0.0.2:8000");
  expect(messages()).toEqual([]);
});

test("a pool that changes is followed, and the list stays until the pods are known", async () => {
  const { start, api, latest, recorder, settle } = createRig();
  api.put(poolCollection, pool({ app: "vllm" }, 8_000));
  await start();
  api.faults.list.push("hang");
  api.put(poolCollection, pool({ app: "other" }, 9_000));
  await settle(4_000);
  expect(latest()).toBe("10.0.0.1:8000 10.0.0.2:8000");
  await settle(minute);
  expect(latest()).toBe("10.0.0.3:9000");
  expect(recorder.lists).toHaveLength(3);
  // Nobody watches the former pods.
  expect([...api.watches].filter(({ request }) => request.path === podCollection)).toHaveLength(1);
  api.put(podCollection, pod("d", { ip: "10.0.0.4", labels: { app: "other" } }));
  await settle();
  expect(latest()).toBe("10.0.0.3:9000 10.0.0.4:9000");
});

test("a change of the pool that says nothing new leaves the watch of its pods", async () => {
  const { start, api, settle, count } = createRig();
  api.put(poolCollection, pool({ app: "vllm" }, 8_000));
  await start();
  api.put(poolCollection, { ...pool({ app: "vllm" }, 8_000), status: { parents: [] } });
  await settle();
  expect(count("list", podCollection)).toBe(1);
});

test.each([
  ["is served", true, "it does not exist"],
  ["is not served", false, "status 404, resource kind not found: as requested"],
])("a pool that does not exist, while its kind %s, is waited for", async (_, isServed, message) => {
  const { start, api, latest, messages, settle, recorder } = createRig();
  if (isServed) api.serve(poolCollection);
  await start();
  expect(latest()).toBe("");
  await settle(minute);
  expect(messages().at(-1)).toBe(`inference pool ai/chat: inference pools, list: ${message}`);
  api.put(poolCollection, pool({ app: "vllm" }, 8_000));
  await settle(minute);
  expect(latest()).toBe("10.0.0.1:8000 10.0.0.2:8000");
  expect(recorder.recoveries).toBe(1);
});

test("a pool that is deleted keeps its pods followed until it is made again", async () => {
  const { start, api, latest, messages, settle, recorder } = createRig();
  api.put(poolCollection, pool({ app: "vllm" }, 8_000));
  await start();
  api.remove(poolCollection, "chat");
  await settle(minute);
  expect(messages()).toEqual(["inference pool ai/chat: inference pools, list: it does not exist"]);
  expect(latest()).toBe("10.0.0.1:8000 10.0.0.2:8000");
  api.remove(podCollection, "a");
  await settle();
  expect(latest()).toBe("10.0.0.2:8000");
  api.put(poolCollection, pool({ app: "vllm" }, 8_001));
  await settle(minute);
  expect(latest()).toBe("10.0.0.2:8001");
  expect(recorder.recoveries).toBe(1);
});

test.each([
  ["selects nothing", pool({}, 8_000)],
  ["names no port", pool({ app: "vllm" })],
  ["names an impossible port", pool({ app: "vllm" }, 65_536)],
])("a pool that %s is a failure, and last list stays in use", async (_, wrong) => {
  const { start, api, latest, messages, settle, recorder } = createRig();
  api.put(poolCollection, pool({ app: "vllm" }, 8_000));
  await start();
  api.put(poolCollection, wrong);
  await settle();
  expect(latest()).toBe("10.0.0.1:8000 10.0.0.2:8000");
  expect(messages()).toEqual(["inference pool ai/chat: no selector or no port; last list stays in use"]);
  api.put(poolCollection, pool({ app: "other" }, 8_000));
  await settle();
  expect(latest()).toBe("10.0.0.3:8000");
  expect(recorder.recoveries).toBe(1);
});

test("a pool's target ports beyond eight are left out", async () => {
  const { start, api, recorder } = createRig();
  api.put(poolCollection, pool({ tier: "gold" }, ...Array.from({ length: 9 }, (_, at) => 8_000 + at)));
  await start();
  expect(recorder.specs.at(-1)).toHaveLength(8);
});

test("a pool that asks for HTTP/2 is followed like any other, and that it is spoken to otherwise is logged once", async () => {
  const { start, api, latest, logger, settle } = createRig();
  const asking = (appProtocol: string, ...ports: readonly number[]): ApiObject => {
    const { spec, ...rest } = pool({ app: "vllm" }, ...ports);
    return { ...rest, spec: { ...(spec as object), appProtocol } };
  };
  const warnings = () => logger.lines.filter(({ level }) => level === "warn").map(({ fields }) => fields.appProtocol);
  api.put(poolCollection, asking("http", 8_000));
  await start();
  expect(warnings()).toEqual([]);
  api.put(poolCollection, asking("kubernetes.io/h2c", 8_000));
  api.put(poolCollection, asking("kubernetes.io/h2c", 8_001));
  await settle();
  expect(latest()).toBe("10.0.0.1:8001 10.0.0.2:8001");
  expect(warnings()).toEqual(["kubernetes.io/h2c"]);
});

test("after a stop neither the pool nor its pods are followed", async () => {
  const { start, api, source, settle, time, recorder } = createRig();
  api.put(poolCollection, pool({ app: "vllm" }, 8_000));
  await start();
  await source.stop();
  api.put(poolCollection, pool({ app: "other" }, 8_000));
  api.remove(podCollection, "a");
  await settle(10 * minute);
  expect(recorder.lists).toHaveLength(2);
  expect([time.pendingCount, api.watches.size]).toEqual([0, 0]);
});
