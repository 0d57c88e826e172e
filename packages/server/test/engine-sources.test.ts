import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createSeededRandom, type EngineSpec, systemScheduler } from "@espalier/core";
import { createKubernetesApi, createRecordingLogger, startDnsServer, waitFor } from "@espalier/testing";
import { expect, onTestFinished, test } from "vitest";
import { loadConfig } from "../src/config/index.ts";
import { createEngineSources } from "../src/lifecycle/engine-sources.ts";
import { createLocalTable } from "../src/lifecycle/operator-engines.ts";
import { createMetrics } from "../src/telemetry/index.ts";

const read = (sections: object) => loadConfig({ file: { path: "espalier.yaml", text: JSON.stringify(sections) } });

/** A router's sources, and what they tell its fleet. */
async function start(sections: object) {
  const created = create(sections);
  await created.sources.start();
  return created;
}

function create(sections: object) {
  const logger = createRecordingLogger();
  const applied: (readonly EngineSpec[])[] = [];
  const { meter, render } = createMetrics({ processMetrics: false });
  const sources = createEngineSources({
    ...{ config: read(sections), table: createLocalTable(), logger, meter },
    ...{ scheduler: systemScheduler, random: createSeededRandom(1) },
    fleet: {
      apply(specs) {
        applied.push(specs);
        return { added: [], changed: [], removed: [], refused: [] };
      },
    },
  });
  onTestFinished(() => sources.stop());
  return {
    sources,
    render,
    messages: () => logger.lines.map(({ message }) => message),
    logged: (message: string) => logger.lines.filter((line) => line.message === message).map(({ fields }) => fields),
    follow: (next: object) => sources.follow(read(next)),
    lists: () => applied.map((specs) => specs.map(({ id }) => id).join(" ")),
    now: () => applied.at(-1)!,
    /** Sources that there are figures of, and whether they are up. */
    async reported() {
      const { body } = await render();
      return [...body.matchAll(/^espalier_discovery_source_up\{source="(.*)"\} (\d)$/gm)].map(
        ([, name, value]) => `${name}: ${value}`,
      );
    },
  };
}

async function startNames() {
  const server = await startDnsServer();
  onTestFinished(() => server.stop());
  const name = (text: string, options: object = {}) => ({
    name: text,
    servers: [server.address],
    interval: "100ms",
    ...options,
  });
  return { server, name };
}

/** A Kubernetes API on a free port, which knows one endpoint of a service. */
async function startApi(address: string) {
  const api = createKubernetesApi();
  api.put("/apis/discovery.k8s.io/v1/namespaces/ai/endpointslices", {
    metadata: { name: "vllm-a", labels: { "kubernetes.io/service-name": "vllm" } },
    ...{ addressType: "IPv4", ports: [{ name: "http", port: 8_000 }], endpoints: [{ addresses: [address] }] },
  });
  const server = createServer(({ url = "", headers }, response) => {
    const gone = api.answer(url, headers, {
      head(status, given) {
        response.writeHead(status, given);
        response.flushHeaders();
      },
      data: (text) => void response.write(text),
      end: () => void response.end(),
      drop: () => response.socket?.resetAndDestroy(),
    });
    response.on("close", gone).on("error", () => {});
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { url, api, watchers: () => api.watches.size };
}

/*
 * Symptom: the first line in the log of a router without Kubernetes spoke of inference pools. Mechanism: the tables of objectives
 * report their content once when they start, also where nobody writes any.
 */
test("without Kubernetes nothing is logged about inference pools", async () => {
  const { messages } = await start({ engines: ["http://a:1"] });
  expect(messages().join("\n")).not.toMatch(/inference|objective|rewrite/i);
});

test("engines of the list come and go; a reload of something else tells the fleet nothing", async () => {
  const { follow, lists } = await start({ engines: ["http://a:1"] });
  await follow({ engines: ["http://a:1", "http://b:1"] });
  await follow({ engines: ["http://a:1", "http://b:1"], policy: "random" });
  await follow({ engines: ["http://b:1"] });
  expect(lists()).toEqual(["a:1", "a:1 b:1", "b:1"]);
});

test("a name that is said as before is asked for by the same source, a name said otherwise by another", async () => {
  const { server, name } = await startNames();
  server.set("x.test", { a: ["10.0.0.1"] });
  server.set("y.test", { a: ["10.0.0.2"] });
  const { follow, lists, now, reported } = await start({ discovery: { dns: [name("x.test:80", { misses: 100 })] } });
  server.set("x.test", { a: [] });
  await follow({ discovery: { dns: [name("y.test:80"), name("x.test:80", { misses: 100 })] } });
  // A new source would have found no address.
  expect(lists()).toEqual(["10.0.0.1:80", "10.0.0.2:80 10.0.0.1:80"]);
  expect(await reported()).toContain("dns y.test:80: 1");

  server.mode = "fail";
  await follow({ discovery: { dns: [name("y.test:80", { weight: 3 })] } });
  expect(lists().at(-1)).toBe("10.0.0.2:80");
  expect(now()[0]?.weight).toBe(1);
  expect((await reported()).sort()).toEqual(["dns y.test:80: 0", "operators: 1", "the configuration: 1"]);
  server.mode = "answer";
  await waitFor(() => now()[0]?.weight === 3, { what: "what the name says again, with its new weight" });

  await follow({});
  expect(lists().at(-1)).toBe("");
  expect((await reported()).sort()).toEqual(["operators: 1", "the configuration: 1"]);
});

test("another API server is asked in place of the first, with connections of its own", async () => {
  const apis = await Promise.all(["10.0.0.1", "10.0.0.2"].map(startApi));
  const at = (index: number) => ({
    discovery: { services: ["ai/vllm:8000"], kubernetes: { "api-server": apis[index]!.url } },
  });
  const { follow, lists, sources } = await start(at(0));
  await follow(at(1));
  expect(lists()).toEqual(["10.0.0.1:8000", "10.0.0.2:8000"]);
  await waitFor(() => apis[0]!.watchers() === 0, { what: "the end of the first server's watch" });
  await sources.stop();
  await waitFor(() => apis[1]!.watchers() === 0, { what: "the end of the second one's" });
});

const objectives = (namespace: string) => `/apis/llm-d.ai/v1alpha2/namespaces/${namespace}/inferenceobjectives`;
const rewrites = "/apis/llm-d.ai/v1alpha2/namespaces/ai/inferencemodelrewrites";

/** An API that has the pool `chat` of some namespaces, without pods. */
async function startPools(...namespaces: readonly string[]) {
  const started = await startApi("10.0.0.1");
  const spec = { selector: { matchLabels: { app: "vllm" } }, targetPorts: [{ number: 8_000 }] };
  for (const namespace of namespaces) {
    const pools = `/apis/inference.networking.k8s.io/v1/namespaces/${namespace}/inferencepools`;
    started.api.put(pools, { metadata: { name: "chat" }, spec });
    started.api.serve(`/api/v1/namespaces/${namespace}/pods`);
    started.api.serve(objectives(namespace));
  }
  started.api.serve(rewrites);
  return started;
}

const objective = (name: string, priority: number) => ({
  metadata: { name },
  spec: { poolRef: { name: "chat" }, priority },
});

const rewrite = (name: string, rules: readonly (readonly string[])[]) => ({
  metadata: { name, namespace: "ai" },
  spec: {
    poolRef: { name: "chat" },
    rules: rules.map((models) => ({
      matches: models.map((value) => ({ model: { value } })),
      targets: [{ modelRewrite: "target" }],
    })),
  },
});

test("objectives and rewrites of an inference pool are followed with it, and forgotten with it", async () => {
  const { api, url } = await startPools("ai");
  api.put(objectives("ai"), objective("urgent", 7));
  api.put(rewrites, rewrite("names", [["a", "b"]]));
  const pool = (options: object = {}) => ({
    discovery: { "inference-pools": [{ pool: "ai/chat", ...options }], kubernetes: { "api-server": url } },
  });
  const { follow, sources, reported, render } = await start(pool());
  const { requestTables: tables } = sources;
  const name = "requests of inference pool ai/chat";
  const figures = async () => {
    const { body } = await render();
    return [/^espalier_discovery_inference_objectives (\d+)$/m, /^espalier_discovery_rewritten_models (\d+)$/m].map(
      (line) => Number(line.exec(body)?.[1]),
    );
  };
  expect([tables.priorityOf("urgent"), tables.rewriteOf("b")?.targets[0]?.model]).toEqual([7, "target"]);
  expect(await reported()).toContain(`${name}: 1`);
  expect(await figures()).toEqual([1, 2]);

  api.put(objectives("ai"), objective("urgent", 8));
  await waitFor(() => tables.priorityOf("urgent") === 8, { what: "the new priority" });
  await follow(pool({ objectives: false }));
  expect([tables.priorityOf("urgent"), tables.rewriteOf("b") === undefined]).toEqual([undefined, false]);
  expect(await reported()).toContain(`${name}: 1`);
  await follow(pool());
  expect(tables.priorityOf("urgent")).toBe(8);
  await follow(pool({ objectives: false, "model-rewrites": false }));
  expect([tables.priorityOf("urgent"), tables.rewriteOf("b")]).toEqual([undefined, undefined]);
  expect(await reported()).not.toContain(`${name}: 1`);
  expect(await figures()).toEqual([0, 0]);
});

test("of two pools' objectives of one name the first pool's counts, and the other is reported", async () => {
  const { api, url } = await startPools("ai", "other");
  api.put(objectives("ai"), objective("urgent", 7));
  api.put(objectives("other"), objective("urgent", 8));
  const pools = ["other/chat", "ai/chat"];
  const { sources, logged } = await start({
    discovery: { "inference-pools": pools, kubernetes: { "api-server": url } },
  });
  expect(sources.requestTables.priorityOf("urgent")).toBe(8);
  expect(logged("conflicting inference object ignored")).toEqual([
    expect.objectContaining({ source: "requests of inference pool ai/chat" }),
  ]);
});

test("models that rewrites name beyond what is kept are reported, and the others count", async () => {
  const { api, url } = await startPools("ai");
  const models = Array.from({ length: 40 }, (_, rule) => Array.from({ length: 250 }, (_, at) => `m${rule}-${at}`));
  api.put(rewrites, rewrite("many", models));
  const { sources, logged } = await start({
    discovery: { "inference-pools": ["ai/chat"], kubernetes: { "api-server": url } },
  });
  const warning = "too many models in inference model rewrites; ignoring the rest";
  expect([sources.requestTables.rewrittenModels.length, logged(warning)]).toEqual([10_000, []]);
  api.put(rewrites, rewrite("one-more", [["one-more"]]));
  await waitFor(() => logged(warning).length > 0, { what: "the warning" });
  expect(logged(warning)).toEqual([{ ignored: 1 }]);
  expect(sources.requestTables.rewriteOf("m39-249")).toBeDefined();
});

test("an API server that stops answering is counted and reported, until it answers again", async () => {
  const { api, url } = await startPools("ai");
  api.put(objectives("ai"), objective("urgent", 7));
  const { sources, reported, logged } = await start({
    discovery: { "inference-pools": [{ pool: "ai/chat", "model-rewrites": false }], kubernetes: { "api-server": url } },
  });
  const watch = () => [...api.watches].find(({ request }) => request.path === objectives("ai"));
  await waitFor(() => watch() !== undefined, { what: "the watch" });
  api.faults.list.push({ status: 500 });
  api.put(objectives("ai"), objective("urgent", 8));
  watch()?.data(`${JSON.stringify({ type: "ERROR", object: { code: 410 } })}\n`);
  const failure = "source of inference objects failed; last good list stays in use";
  const recovery = "source of inference objects recovered";
  await waitFor(() => logged(recovery).length > 0, { what: "the recovery" });
  const source = "requests of inference pool ai/chat";
  expect(logged(failure)).toEqual([expect.objectContaining({ source })]);
  expect(logged(recovery)).toEqual([{ source }]);
  expect(await reported()).toContain(`${source}: 1`);
  expect(sources.requestTables.priorityOf("urgent")).toBe(8);
});

test("a start that fails for another source leaves nobody following the API server", async () => {
  const { url, watchers } = await startPools("ai");
  const { sources } = create({
    "engines-file": "/nowhere/engines.yaml",
    discovery: { "inference-pools": ["ai/chat"], kubernetes: { "api-server": url } },
  });
  await expect(sources.start()).rejects.toThrowError(expect.objectContaining({ code: "config_unreadable" }));
  await waitFor(() => watchers() === 0, { what: "no watch" });
});
