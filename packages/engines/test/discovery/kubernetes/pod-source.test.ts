import { expect, test } from "vitest";
import { createPodSource, type PodSourceOptions } from "../../../src/discovery/index.ts";
import { plainTraits } from "../helpers.ts";
import { createKubernetesRig, type PodOptions, pod, podCollection } from "./rig.ts";

function createRig(more: Partial<PodSourceOptions> = {}) {
  const rig = createKubernetesRig((ports, logger) =>
    createPodSource(ports, {
      ...{ namespace: "ai", selector: "app=vllm", port: 8_000, traits: plainTraits, logger },
      ...more,
    }),
  );
  rig.api.serve(podCollection);
  return {
    ...rig,
    put: (name: string, options: PodOptions) => rig.api.put(podCollection, pod(name, options)),
    latest: () => rig.recorder.lists.at(-1),
    latestSpecs: () => rig.recorder.specs.at(-1),
    warnings: () => rig.logger.lines.map(({ fields }) => fields.problem),
  };
}

test("pods that run, are ready and are not being deleted are engines", async () => {
  const { start, put, latest, settle } = createRig();
  put("ready", { ip: "10.0.0.1" });
  put("waiting", { ip: "10.0.0.2", ready: false });
  put("new", {});
  put("done", { ip: "10.0.0.4", phase: "Succeeded" });
  put("leaving", { ip: "10.0.0.5", metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" } });
  put("other", { ip: "10.0.0.6", labels: { app: "other" } });
  await start();
  expect(latest()).toBe("10.0.0.1:8000");
  put("waiting", { ip: "10.0.0.2" });
  put("ready", { ip: "10.0.0.1", metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" } });
  await settle();
  expect(latest()).toBe("10.0.0.2:8000");
  // A pod whose labels change is no longer selected: the server says that it is deleted.
  put("waiting", { ip: "10.0.0.2", labels: { app: "other" } });
  await settle();
  expect(latest()).toBe("");
});

test("a port may be named; those of sidecars, which stand among the init containers, count too", async () => {
  const { start, put, latest } = createRig({ port: "proxy" });
  const initContainers = [{ ports: [{ name: "proxy", containerPort: 8_200 }] }];
  put("a", { ip: "10.0.0.1", spec: { initContainers } });
  put("b", { ip: "10.0.0.2" });
  await start();
  expect(latest()).toBe("10.0.0.1:8200");
});

test("labels and place of a pod are those of its engine; what the configuration says stays", async () => {
  const { start, put, latestSpecs } = createRig({ traits: { ...plainTraits, labels: { tier: "gold" } } });
  put("a", { ip: "10.0.0.1", labels: { tier: "lead", rack: "r1" } });
  await start();
  expect(latestSpecs()?.[0]?.labels).toEqual({
    ...{ app: "vllm", tier: "gold", rack: "r1" },
    ...{ "k8s.pod.name": "a", "k8s.namespace.name": "ai", "k8s.node.name": "node-1" },
  });
});

test("a pod's labels beyond 56 are left out", async () => {
  const { start, put, latestSpecs } = createRig();
  put("a", { ip: "10.0.0.1", labels: Object.fromEntries(Array.from({ length: 56 }, (_, at) => [`l${at}`, "v"])) });
  await start();
  const labels = Object.keys(latestSpecs()?.[0]?.labels ?? {});
  expect(labels.filter((key) => !key.startsWith("k8s."))).toHaveLength(56);
  expect(labels).not.toContain("l55");
});

const everything = {
  "espalier.dev/scheme": "https",
  "espalier.dev/models": "org/model-a, model-b",
  "espalier.dev/role": "decode",
  "espalier.dev/weight": "0.5",
  "espalier.dev/region": "eu",
  "espalier.dev/ranks": "4",
  "espalier.dev/first-rank": "8",
  "espalier.dev/kv-events-port": "5557",
  "espalier.dev/kv-replay-port": "5558",
  "espalier.dev/kv-topic": "kv@",
  "espalier.dev/kv-transfer": "nixl",
  "espalier.dev/kv-transfer-port": "5600",
};

test("annotations describe the engine, before labels and the configuration", async () => {
  const { start, put, latestSpecs, warnings } = createRig({ traits: { ...plainTraits, role: "both", weight: 7 } });
  put("a", { ip: "10.0.0.1", annotations: everything, labels: { "espalier.dev/role": "prefill" } });
  put("b", { ip: "10.0.0.2", labels: { "espalier.dev/role": "prefill" } });
  await start();
  expect(latestSpecs()).toMatchObject([
    {
      ...{ id: "10.0.0.1:8000", url: "https://10.0.0.1:8000", models: ["org/model-a", "model-b"] },
      ...{ role: "decode", weight: 0.5, ranks: 4, firstRank: 8, region: "eu" },
      kvEvents: { endpoint: "tcp://10.0.0.1:5557", replay: "tcp://10.0.0.1:5558", topic: "kv@" },
      kvTransfer: { protocol: "nixl", port: 5_600 },
    },
    { role: "prefill", weight: 7, models: [] },
  ]);
  expect(warnings()).toEqual([]);
});

test("the region that Kubernetes labels a pod with counts before the configuration's, and after ours", async () => {
  const { start, put, latestSpecs } = createRig({ traits: { ...plainTraits, region: "configured" } });
  const labels = { "topology.kubernetes.io/region": "eu-west-1" };
  put("a", { ip: "10.0.0.1" });
  put("b", { ip: "10.0.0.2", labels });
  put("c", { ip: "10.0.0.3", labels, annotations: { "espalier.dev/region": "ours" } });
  await start();
  expect(latestSpecs()?.map((spec) => spec.region)).toEqual(["configured", "eu-west-1", "ours"]);
});

test.each([
  ["prefill", "prefill"],
  ["decode", "decode"],
  ["both", "both"],
  ["prefill-decode", "both"],
  ["encode", "both"],
])("llm-d's role %s is %s, where no key of ours says otherwise", async (written, role) => {
  const { start, put, latestSpecs } = createRig();
  put("a", { ip: "10.0.0.1", labels: { "llm-d.ai/role": written } });
  put("b", { ip: "10.0.0.2", labels: { "llm-d.ai/role": written, "espalier.dev/role": "decode" } });
  await start();
  expect(latestSpecs()?.map((spec) => spec.role)).toEqual([role, "decode"]);
});

test.each([
  ["scheme", "ftp"],
  ["models", " , "],
  ["models", Array.from({ length: 257 }, (_, at) => `m${at}`).join()],
  ["models", "m".repeat(257)],
  ["role", "leader"],
  ["weight", "0"],
  ["weight", "1000001"],
  ["weight", "heavy"],
  ["ranks", "0"],
  ["ranks", "65"],
  ["ranks", "1.5"],
  ["first-rank", "-1"],
  ["first-rank", "1024"],
  ["kv-events-port", "0"],
  ["kv-replay-port", "65536"],
  ["region", ""],
  ["region", "r".repeat(129)],
  ["kv-transfer", "pigeon"],
  ["kv-transfer-port", "http"],
])("a value of %s that is of no use is said once and does not count: %s", async (key, value) => {
  const { start, put, latestSpecs, warnings, settle } = createRig();
  put("plain", { ip: "10.0.0.1" });
  put("wrong", { ip: "10.0.0.2", annotations: { [`espalier.dev/${key}`]: value } });
  await start();
  const [plain, wrong] = latestSpecs() ?? [];
  expect({ ...wrong, id: "", url: "", labels: {} }).toEqual({ ...plain, id: "", url: "", labels: {} });
  put("third", { ip: "10.0.0.3" });
  await settle();
  expect(warnings()).toHaveLength(1);
  expect(warnings()[0]).toContain(`wrong: espalier.dev/${key}: `);
});

test("10,000 pods are kept; one more is left out, and a new list brings it when another goes", async () => {
  const { start, put, api, settle, messages, latest, recorder, count } = createRig();
  const name = (at: number): string => `p${String(at).padStart(5, "0")}`;
  for (let at = 0; at < 10_000; at++) put(name(at), at < 3 ? { ip: `10.0.0.${at}` } : { ready: false });
  await start();
  expect(messages()).toEqual([]);
  put("z", { ip: "10.0.0.9" });
  await settle();
  expect(latest()).toBe("10.0.0.0:8000 10.0.0.1:8000 10.0.0.2:8000");
  expect(messages()).toEqual(["pods ai/app=vllm: pods, count: more than 10000; the rest is ignored"]);
  api.remove(podCollection, name(5_000));
  await settle(1_000);
  expect(latest()).toBe("10.0.0.0:8000 10.0.0.1:8000 10.0.0.2:8000 10.0.0.9:8000");
  expect(recorder.recoveries).toBe(1);
  // 40 pages each.
  expect(count("list", podCollection)).toBe(80);
});

test("pages follow one another, and a list whose place has expired begins anew", async () => {
  const { start, put, api, latest, messages, settle, count } = createRig();
  api.maxPage = 2;
  for (let at = 1; at <= 5; at++) put(`p${at}`, { ip: `10.0.0.${at}` });
  api.faults.list.push({ status: 500 });
  await start();
  await settle(1_000);
  expect(latest()?.split(" ")).toHaveLength(5);
  const pages = api.requests.filter(({ kind }) => kind === "list").map(({ query }) => query.get("continue"));
  expect(pages).toEqual([null, null, "1005:2", "1005:4"]);

  const before = count("list", podCollection);
  api.compact();
  [...api.watches][0]?.end();
  put("p6", { ip: "10.0.0.6" });
  const first = { metadata: { resourceVersion: "7", continue: "7:2" }, items: [] };
  api.faults.list.push({ status: 200, body: JSON.stringify(first) });
  await settle(5_000);
  expect(latest()?.split(" ")).toHaveLength(6);
  expect(messages().at(-1)).toContain("status 410, resource version expired");
  expect(count("list", podCollection) - before).toBe(5);
});

test("a list that goes round in circles is given up after eight pages more than the most", async () => {
  const { start, api, messages, count } = createRig();
  const page = { metadata: { resourceVersion: "1", continue: "1000:0" }, items: [] };
  for (let at = 0; at < 47; at++) api.faults.list.push({ status: 200, body: JSON.stringify(page) });
  await start();
  expect(messages()).toEqual([]);
  expect(count("list", podCollection)).toBe(48);

  const rig = createRig();
  for (let at = 0; at < 48; at++) rig.api.faults.list.push({ status: 200, body: JSON.stringify(page) });
  await rig.start();
  expect(rig.messages()[0]).toContain("the list does not end");
});
