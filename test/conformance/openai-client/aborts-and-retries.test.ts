import { waitFor } from "@espalier/testing";
import { APIConnectionTimeoutError, APIUserAbortError, InternalServerError } from "openai";
import { afterEach, expect, test } from "vitest";
import { createRig, type Sim } from "../../integration/rig.ts";
import { failureOf, openAiClient } from "./client.ts";

const rig = createRig();
afterEach(() => rig.close());

/** Engines at the speed of life take seconds for such an answer. */
const long = { model: "tiny", messages: [{ role: "user" as const, content: "hello" }], max_tokens: 2_000 };
const short = { ...long, max_tokens: 2 };

async function start(sim = {}) {
  const sims = await rig.sims(1, sim);
  return { sim: sims[0]!, router: await rig.router({ engines: sims.map(({ url }) => url) }) };
}

async function untilAborted(sim: Sim): Promise<void> {
  await waitFor(
    async () => {
      const { totals, active } = await sim.state();
      return totals.aborted === 1 && active.length === 0;
    },
    { what: "abort of the engine's request" },
  );
}

test("leaving a stream early ends the engine's work on it, and nothing stays in flight", async () => {
  const { sim, router } = await start({ speed: 1 });
  const stream = await openAiClient(router).chat.completions.create({ ...long, stream: true });
  let seen = 0;
  for await (const chunk of stream) if (chunk.choices[0]?.delta.content && ++seen === 3) break;
  await untilAborted(sim);
  await router.untilIdle();
});

test("aborting a stream ends the engine's work on it", async () => {
  const { sim, router } = await start({ speed: 1 });
  const stream = await openAiClient(router).chat.completions.create({ ...long, stream: true });
  let seen = 0;
  for await (const chunk of stream) if (chunk.choices[0]?.delta.content && ++seen === 3) stream.controller.abort();
  expect(seen).toBeLessThan(2_000);
  await untilAborted(sim);
  await router.untilIdle();
});

test("aborting a request before its answer ends the engine's work on it", async () => {
  const { sim, router } = await start({ speed: 1 });
  const abort = new AbortController();
  const failure = failureOf(openAiClient(router).chat.completions.create(long, { signal: abort.signal }));
  await waitFor(async () => (await sim.state()).active.length === 1, { what: "request at the engine" });
  abort.abort();
  expect(await failure).toBeInstanceOf(APIUserAbortError);
  await untilAborted(sim);
  await router.untilIdle();
});

test("a timeout of the client ends the engine's work too", async () => {
  const { sim, router } = await start({ speed: 1 });
  const failure = await failureOf(openAiClient(router, { timeout: 300 }).chat.completions.create(long));
  expect(failure).toBeInstanceOf(APIConnectionTimeoutError);
  await untilAborted(sim);
  await router.untilIdle();
});

test("on 503 the client comes back after Retry-After, under the router's eyes the same request", async () => {
  const { sim, router } = await start();
  const setDraining = (draining: boolean) =>
    router.admin("PATCH", `/admin/engines/${encodeURIComponent(sim.id)}`, { draining });
  await setDraining(true);
  const seen: { readonly status: number; readonly retryAfter: string | null; readonly atMs: number }[] = [];
  const client = openAiClient(router, {
    maxRetries: 1,
    async fetch(url, init) {
      const response = await fetch(url, init);
      seen.push({ status: response.status, retryAfter: response.headers.get("retry-after"), atMs: performance.now() });
      await setDraining(false);
      return response;
    },
  });
  const completion = await client.chat.completions.create(short);
  expect(completion.usage?.completion_tokens).toBe(2);
  expect(seen.map(({ status, retryAfter }) => [status, retryAfter])).toEqual([
    [503, "1"],
    [200, null],
  ]);
  expect(seen[1]!.atMs - seen[0]!.atMs).toBeGreaterThanOrEqual(990);
  const { requests } = await sim.state();
  expect(requests.map(({ headers }) => headers["x-stainless-retry-count"])).toEqual(["1"]);
});

test("the client gives up after its retries, with the router's last answer", async () => {
  const router = await rig.router();
  let calls = 0;
  const client = openAiClient(router, {
    maxRetries: 1,
    fetch: (url, init) => {
      calls++;
      return fetch(url, init);
    },
  });
  const error = await failureOf(client.chat.completions.create(short));
  expect(error).toBeInstanceOf(InternalServerError);
  expect(error).toMatchObject({ status: 503, code: "no_engine_available" });
  expect(calls).toBe(2);
});

test("a failing engine is hidden by the router's own retry: the client sees one good answer", async () => {
  const [bad, good] = await rig.sims(2);
  await bad!.fault({ kind: "reset-before-headers" });
  const router = await rig.router({ engines: [bad!.url, good!.url], config: { policy: "round_robin" } });
  const client = openAiClient(router);
  const answers = [];
  for (let at = 0; at < 4; at++) answers.push(await client.chat.completions.create(short).withResponse());
  const attempts = answers.map(({ response }) => response.headers.get("x-espalier-attempts"));
  expect(new Set(attempts)).toEqual(new Set(["1", "2"]));
  expect(answers.map(({ response }) => response.headers.get("x-espalier-engine"))).toEqual(Array(4).fill(good!.id));
});
