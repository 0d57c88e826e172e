/** Engines that fetch KV blocks of a prompt from each other because the router tells them to. */
import { waitFor } from "@espalier/testing";
import { afterEach, describe, expect, test } from "vitest";
import { cacheRouter, feedsOf, publishingSims } from "./cache-rig.ts";
import { ask, tokensOf } from "./cached-turns.ts";
import { call, type Json, post } from "./client.ts";
import { type EngineLike, meshRouters, untilRead } from "./mesh-rig.ts";
import { createRig, type RunningRouter, type Sim } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const promptTokens = 4_010;
const wholeTokens = 4_000;

/** Engines with memory for others on the CPU, in the engines' own time: a prompt of 4,000 tokens takes a quarter of a second. */
async function lenders(
  count: number,
): Promise<{ readonly sims: readonly Sim[]; readonly entries: readonly EngineLike[] }> {
  const sims: Sim[] = [];
  for (let seed = 0; seed < count; seed++) {
    const [sim] = await publishingSims(rig, 1, {
      seed: 0,
      speed: 2,
      parameters: { blockSize: 16, blockCount: 4_000, cpuBlocks: 4_000 },
      p2p: { port: 0 },
      selfDescribingKvEvents: true,
    });
    sims.push(sim!);
  }
  const entries = await Promise.all(
    sims.map(async ({ url }) => {
      const { port } = (await call(`${url}/sim/p2p`)).json as { readonly port: number };
      return { url, "kv-pull": { port } };
    }),
  );
  return { sims, entries };
}

const pulls = async ({ url }: Sim): Promise<Readonly<Record<string, number>>> =>
  ((await call(`${url}/sim/p2p`)).json as { readonly consumer: Record<string, number> }).consumer;

const completion = (prompt: readonly number[]) => ({ model: "tiny", prompt, max_tokens: 1 });

/** Waits until a router knows that an engine has so many blocks in CPU memory. */
const untilLendable = (router: RunningRouter, sim: Sim, blocks: number) =>
  waitFor(async () => (await feedsOf(router)).find(({ target }) => target === sim.id)?.blocks.cpu === blocks, {
    what: `${blocks} blocks in CPU memory of ${sim.id}`,
  });

/** Occupies an engine, so that waiting for it takes longer than fetching from it. */
async function occupy(router: RunningRouter, busy: Sim, others: readonly Sim[]): Promise<() => Promise<unknown>> {
  const drain = (draining: boolean) =>
    Promise.all(others.map(({ id }) => router.admin("PATCH", `/admin/engines/${id}`, { draining })));
  await drain(true);
  const asked = [1, 2, 3, 4].map((seed) =>
    ask(router, "/v1/completions", { prompt: tokensOf(100 + seed, promptTokens), max_tokens: 1 }),
  );
  // A test that fails closes everything before they are answered.
  for (const one of asked) one.catch(() => {});
  await waitFor(async () => (await loadOf(router, busy)) === asked.length, { what: "an engine that is busy" });
  await drain(false);
  return () => Promise.all(asked);
}

async function loadOf(router: RunningRouter, { id }: Sim): Promise<unknown> {
  const engines = (await router.engines()) as unknown as readonly {
    readonly id: string;
    readonly targets: readonly { readonly load: { readonly in_flight: number } }[];
  }[];
  return engines.find((engine) => engine.id === id)?.targets[0]?.load.in_flight;
}

const explained = async (router: RunningRouter, prompt: readonly number[]): Promise<Json> =>
  (await router.admin("POST", "/admin/explain", completion(prompt))).json;

describe("with two engines that lend each other blocks", () => {
  async function fleet(config: Json = {}) {
    const { sims, entries } = await lenders(2);
    const [holder, other] = sims as [Sim, Sim];
    const router = await cacheRouter(
      rig,
      entries.map((entry) => ({ ...entry })),
      { config: { policy: "predicted_latency", ...config } },
    );
    const prompt = tokensOf(7, promptTokens);
    // Past the router, so that it knows by events alone.
    await post(`${holder.url}/v1/completions`, completion(prompt));
    await untilLendable(router, holder, wholeTokens / 16);
    return { holder, other, router, prompt };
  }

  test("a prompt stays where it is cached while that engine is free", async () => {
    const { holder, other, router, prompt } = await fleet();
    expect(await explained(router, prompt)).toMatchObject({ choice: { key: holder.id }, pull: null });
    const turn = await ask(router, "/v1/completions", { prompt, max_tokens: 1 });
    expect(turn).toMatchObject({ engine: holder.id, cached: wholeTokens });
    expect(await pulls(other)).toMatchObject({ pulls: 0 });
  });

  test("when that engine is busy another one fetches the blocks from it, which is explained, counted and shown", async () => {
    const { holder, other, router, prompt } = await fleet();
    const rest = await occupy(router, holder, [other]);
    const report = await explained(router, prompt);
    expect(report).toMatchObject({ choice: { key: other.id }, pull: { from: holder.id, tokens: wholeTokens } });
    const { ms, computeMs } = report.pull as { readonly ms: number; readonly computeMs: number };
    expect(ms).toBeLessThan(computeMs);
    const answer = await post(`${router.url}/v1/completions`, completion(prompt));
    expect(answer.headers["x-espalier-engine"]).toBe(other.id);
    const shown = new RegExp(`^${holder.id};tokens=${wholeTokens};ms=\\d+;compute-ms=\\d+$`);
    expect(answer.headers["x-espalier-kv-source"]).toMatch(shown);
    expect(answer.json.usage).toMatchObject({ prompt_tokens_details: { cached_tokens: wholeTokens } });
    expect(await pulls(other)).toMatchObject({ pulls: 1, pulledTokens: wholeTokens, emptyPulls: 0 });
    const metrics = await router.metrics();
    expect(metrics.sum("espalier_kv_pulls_total", { outcome: "hit" })).toBe(1);
    expect(metrics.sum("espalier_kv_pull_tokens_total")).toBe(wholeTokens);
    await rest();
    // It has them now itself.
    await untilLendable(router, other, wholeTokens / 16);
    expect((await explained(router, prompt)).pull).toBeNull();
  });

  test("blocks that do not come are computed, and the engine that lacked them is trusted less", async () => {
    const { holder, other, router, prompt } = await fleet();
    await post(`${holder.url}/sim/faults`, { path: "/kv/pull", kind: "transfer-missing", times: 1 });
    const rest = await occupy(router, holder, [other]);
    const turn = await ask(router, "/v1/completions", { prompt, max_tokens: 1 });
    expect(turn).toMatchObject({ status: 200, engine: other.id, cached: 0 });
    expect((await router.metrics()).sum("espalier_kv_pulls_total", { outcome: "miss" })).toBe(1);
    await rest();
    const { candidates } = (await explained(router, prompt)) as {
      readonly candidates: readonly { readonly key: string; readonly signals: Json }[];
    };
    expect(candidates.find(({ key }) => key === holder.id)?.signals.lendTrust).toBeLessThan(0.8);
    expect(candidates.find(({ key }) => key === other.id)?.signals.lendTrust).toBe(1);
  });

  test("a client cannot name a source", async () => {
    const { router, prompt } = await fleet();
    const source = { remote_kv_source: { kv_request_id: "mine", remote_host: "127.0.0.1", remote_port: 1 } };
    const answer = await post(`${router.url}/v1/completions`, { ...completion(prompt), kv_transfer_params: source });
    expect(answer.status).toBe(400);
    expect((await ask(router, "/v1/completions", { prompt, max_tokens: 1 })).status).toBe(200);
  });

  test("an API whose requests cannot name a source computes", async () => {
    const { holder, other, router, prompt } = await fleet();
    const rest = await occupy(router, holder, [other]);
    const answer = await post(`${router.url}/v1/responses`, { model: "tiny", input: "hello", max_output_tokens: 1 });
    expect(answer.status).toBe(200);
    expect(answer.headers["x-espalier-kv-source"]).toBeUndefined();
    expect((await ask(router, "/v1/completions", { prompt, max_tokens: 1 })).cached).toBe(wholeTokens);
    await rest();
  });
});

test("every router of a mesh sees what an engine sends to others", async () => {
  const { sims, entries } = await lenders(3);
  const routers = await meshRouters(rig, 2, entries, { config: { policy: "predicted_latency" } });
  await untilRead(routers, 3);
  const [holder, ...others] = sims as [Sim, Sim, Sim];
  const [first, second] = routers as [RunningRouter, RunningRouter];
  const prompt = tokensOf(7, promptTokens);
  await post(`${holder.url}/v1/completions`, completion(prompt));
  for (const router of routers) await untilLendable(router, holder, wholeTokens / 16);
  await post(`${holder.url}/sim/faults`, { path: "/kv/pull", kind: "transfer-slow", delayMs: 1_500, times: 1 });
  const rest = await occupy(first, holder, others);
  const turn = ask(first, "/v1/completions", { prompt, max_tokens: 1 });
  const lending = async (): Promise<unknown> => {
    const { candidates } = (await explained(second, prompt)) as {
      readonly candidates: readonly { readonly key: string; readonly signals: Json }[];
    };
    return candidates.find(({ key }) => key === holder.id)?.signals.lendingTokens;
  };
  await waitFor(async () => (await lending()) === wholeTokens, { what: "a transfer that the other router knows of" });
  expect((await turn).cached).toBe(wholeTokens);
  await waitFor(async () => (await lending()) === 0, { what: "a transfer that is over" });
  await rest();
});
