import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type ApiObject, createKubernetesApi, waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { ask } from "./cached-turns.ts";
import type { Json } from "./client.ts";
import { serveApi } from "./kubernetes-server.ts";
import { createRig, type RunningRouter, type Sim } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/** Some of them take a while on a busy machine. */
const timeout = 90_000;
const deadlineMs = 30_000;
const slices = "/apis/discovery.k8s.io/v1/namespaces/ai/endpointslices";
const pods = "/api/v1/namespaces/ai/pods";
const inferencePools = "/apis/inference.networking.k8s.io/v1/namespaces/ai/inferencepools";
const fixture = (name: string): string => fileURLToPath(new URL(`fixtures/${name}`, import.meta.url));

const portOf = ({ url }: Sim): number => Number(new URL(url).port);

/** A slice with the engine as its only endpoint. */
const sliceOf = (sim: Sim, ready = true): ApiObject => ({
  metadata: { name: `slice-${portOf(sim)}`, labels: { "kubernetes.io/service-name": "vllm" } },
  addressType: "IPv4",
  ports: [{ name: "http", port: portOf(sim) }],
  endpoints: [{ addresses: ["127.0.0.1"], conditions: { ready } }],
});

const podOf = (name: string, annotations: Json, ...sims: readonly Sim[]): ApiObject => ({
  metadata: { name, namespace: "ai", labels: { app: "vllm" }, annotations },
  spec: { containers: [{ ports: sims.map((sim) => ({ name: "http", containerPort: portOf(sim) })) }] },
  status: { phase: "Running", podIP: "127.0.0.1", conditions: [{ type: "Ready", status: "True" }] },
});

const startRouter = (discovery: Json): Promise<RunningRouter> => rig.router({ config: { discovery } });

const untilUp = (router: RunningRouter, sims: readonly Sim[]) =>
  waitFor(
    async () => {
      const engines = await router.engines();
      const up = engines.filter(({ state, models }) => state === "up" && models !== null).map(({ id }) => id);
      return (
        engines.length === sims.length &&
        up.sort().join() ===
          sims
            .map(({ id }) => id)
            .sort()
            .join()
      );
    },
    { what: `${sims.length} engines`, deadlineMs },
  );

const send = async (router: RunningRouter): Promise<number> =>
  (await ask(router, "/v1/completions", { prompt: "hello", max_tokens: 1 })).status;

test("endpoints of a service come and go, over watches that break, lines in halves and versions that expire", {
  timeout,
}, async () => {
  const [first, second, third] = (await rig.sims(3)) as [Sim, Sim, Sim];
  const api = createKubernetesApi();
  api.put(slices, sliceOf(first));
  const router = await startRouter({ services: ["ai/vllm"], kubernetes: { "api-server": await serveApi(rig, api) } });
  await untilUp(router, [first]);
  expect(await send(router)).toBe(200);
  await waitFor(() => api.watches.size === 1, { what: "watch", deadlineMs });
  const watch = () => [...api.watches][0]!;

  api.put(slices, sliceOf(second, false));
  api.put(slices, sliceOf(third));
  await untilUp(router, [first, third]);

  watch().drop();
  api.put(slices, sliceOf(second));
  await untilUp(router, [first, second, third]);

  await waitFor(() => api.watches.size === 1, { what: "watch", deadlineMs });
  const { metadata, ...rest } = sliceOf(third, false);
  const line = JSON.stringify({
    type: "MODIFIED",
    object: { ...rest, metadata: { ...metadata, resourceVersion: "1001" } },
  });
  watch().data(line.slice(0, 100));
  expect(await send(router)).toBe(200);
  watch().data(`${line.slice(100)}\n`);
  await untilUp(router, [first, second]);

  api.faults.list.push({ status: 500 }, "drop", { status: 429, headers: { "retry-after": "1" } });
  api.compact();
  watch().end();
  api.put(slices, sliceOf(third));
  api.remove(slices, sliceOf(first).metadata.name);
  await untilUp(router, [second, third]);
  expect(await send(router)).toBe(200);
  const page = await router.metrics();
  expect(page.sum("espalier_discovery_engines")).toBe(2);
  expect(page.sum("espalier_discovery_source_up", { source: "service ai/vllm" })).toBe(1);
  expect(page.sum("espalier_discovery_failures_total", { source: "service ai/vllm" })).toBeGreaterThan(0);
});

test("pods and inference pools, over TLS, with a token that is replaced and what annotations say", {
  timeout,
}, async () => {
  const [first, second, third] = (await rig.sims(3)) as [Sim, Sim, Sim];
  const folder = await mkdtemp(join(tmpdir(), "espalier-token-"));
  rig.own(() => rm(folder, { recursive: true, force: true }));
  const tokenFile = join(folder, "token");
  await writeFile(tokenFile, "one");
  const api = createKubernetesApi();
  api.token = "one";
  api.put(pods, podOf("a", { "espalier.dev/role": "decode", "espalier.dev/models": "named" }, first));
  const targetPorts = [second, third].map((sim) => ({ number: portOf(sim) }));
  const matchLabels = { app: "other" };
  api.put(inferencePools, { metadata: { name: "chat" }, spec: { selector: { matchLabels }, targetPorts } });
  const ranks = podOf("b", {});
  api.put(pods, { ...ranks, metadata: { ...ranks.metadata, labels: matchLabels } });
  const router = await startRouter({
    pods: [{ selector: "app=vllm", namespace: "ai", "port-name": "http" }],
    "inference-pools": ["ai/chat"],
    kubernetes: {
      "api-server": await serveApi(rig, api, { cert: fixture("localhost.crt"), key: fixture("localhost.key") }),
      "ca-file": fixture("localhost.crt"),
      "token-file": tokenFile,
    },
  });
  await untilUp(router, [first, second, third]);
  const engines = await router.engines();
  expect(engines.find(({ id }) => id === first.id)).toMatchObject({
    ...{ role: "decode", models: ["named"] },
    labels: { app: "vllm", "k8s.pod.name": "a", "k8s.namespace.name": "ai" },
  });

  await waitFor(() => api.watches.size === 3, { what: "watches", deadlineMs });
  api.token = "two";
  for (const watch of [...api.watches]) watch.end();
  api.remove(pods, "a");
  const refused = () => router.lines.some(({ fields }) => String(fields.error).includes("status 401"));
  await waitFor(refused, { what: "refusal", deadlineMs });
  expect(await router.engines()).toHaveLength(3);
  await writeFile(`${tokenFile}.new`, "two");
  await rename(`${tokenFile}.new`, tokenFile);
  await untilUp(router, [second, third]);
});

test("a router whose API server is away serves the engines that it was given", { timeout }, async () => {
  const [sim] = (await rig.sims(1)) as [Sim];
  const api = createKubernetesApi();
  const url = await serveApi(rig, api);
  for (let at = 0; at < 1_000; at++) api.faults.list.push("drop");
  const router = await rig.router({
    engines: [sim.url],
    config: { discovery: { services: ["ai/vllm"], kubernetes: { "api-server": url } } },
  });
  expect(await send(router)).toBe(200);
  const page = await router.metrics();
  expect(page.sum("espalier_discovery_source_up", { source: "service ai/vllm" })).toBe(0);
});
