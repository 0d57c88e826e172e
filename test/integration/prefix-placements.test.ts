import { waitFor } from "@espalier/testing";
import { afterEach, describe, expect, test } from "vitest";
import { cacheRouter, createMovableClock, publishingSims, quietSims, untilHeard } from "./cache-rig.ts";
import { ask, type Turn, tokensOf } from "./cached-turns.ts";
import { type Json, openPost } from "./client.ts";
import { httpEngine, type SeenRequest } from "./engines.ts";
import { createRig, type RunningRouter, type Sim } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const complete = (router: RunningRouter, prompt: readonly number[], fields: Json = {}) =>
  ask(router, "/v1/completions", { prompt, max_tokens: 1, ...fields });

async function loadOf(router: RunningRouter): Promise<Readonly<Record<string, number>>> {
  return (await router.engines())[0]!.targets[0]!.load;
}

describe("prompt tokens that wait", () => {
  test("are those that the engine lacks, as far as that is known", async () => {
    const waiting: SeenRequest[] = [];
    const engine = await httpEngine(rig, (request) => void waiting.push(request));
    const router = await rig.router({ engines: [engine.url], config: { policy: "least_work" } });
    const send = async (prompt: readonly number[]) => {
      const sent = waiting.length + 1;
      openPost(`${router.url}/v1/completions`, { model: "tiny", prompt, max_tokens: 1 });
      await waitFor(() => waiting.length === sent, { what: "request at the engine" });
      return (await loadOf(router)).pending_prefill_tokens!;
    };
    const common = tokensOf(1, 320);
    expect(await send([...common, ...tokensOf(2, 80)])).toBe(400);
    // The first is there already, though it has not been computed.
    expect(await send([...common, ...tokensOf(3, 100)])).toBe(400 + 100);
    expect(await send(tokensOf(4, 50))).toBe(400 + 100 + 50);
    expect(await send([...common, ...tokensOf(2, 80)])).toBe(400 + 100 + 50 + 16);
    for (const { response } of waiting) response.writeHead(200, { "content-type": "application/json" }).end("{}");
    await router.untilIdle();
  });

  test("are counted by what events tell", async () => {
    const sims = await publishingSims(rig, 1);
    const router = await cacheRouter(rig, sims, { config: { policy: "least_work" } });
    const prompt = tokensOf(1, 1_000);
    await complete(router, prompt);
    await untilHeard(router, sims);
    await sims[0]!.fault({ kind: "hang-before-headers", count: 1 });
    const request = openPost(`${router.url}/v1/completions`, {
      model: "tiny",
      prompt: [...prompt, ...tokensOf(2, 200)],
      max_tokens: 1,
    });
    await waitFor(async () => (await loadOf(router)).in_flight === 1, { what: "request at the engine" });
    expect((await loadOf(router)).pending_prefill_tokens).toBe(1_200 - 992);
    request.destroy();
    await router.untilIdle();
  });
});

test.each(["auto", "off"])("a burst of siblings goes together before anybody tells, events %s", async (mode) => {
  const sims = await publishingSims(rig, 4, { speed: 20 });
  const router = await cacheRouter(rig, sims, {
    config: { "kv-events": { mode } },
    feeds: mode === "auto" ? 4 : 0,
  });
  const common = tokensOf(1, 600);
  const siblings = Array.from({ length: 20 }, (_, at) => complete(router, [...common, ...tokensOf(10 + at, 60)]));
  const turns = await Promise.all(siblings);
  expect(new Set(turns.map(({ engine }) => engine)).size).toBe(1);
  expect(turns.map(({ predicted }) => predicted).sort((one, other) => one - other)).toEqual([
    0,
    ...Array(19).fill(592),
  ]);
});

test("bursts of several families do not mix", async () => {
  const sims = await publishingSims(rig, 4, { speed: 20 });
  const router = await cacheRouter(rig, sims);
  const families = Array.from({ length: 4 }, (_, family) => tokensOf(family, 600));
  const turns = await Promise.all(
    Array.from({ length: 32 }, (_, at) => complete(router, [...families[at % 4]!, ...tokensOf(10 + at, 60)])),
  );
  for (let family = 0; family < 4; family++) {
    expect(new Set(turns.filter((_, at) => at % 4 === family).map(({ engine }) => engine)).size).toBe(1);
  }
  expect(turns.filter(({ predicted }) => predicted === 0)).toHaveLength(4);
});

interface Refusal {
  readonly name: string;
  readonly fault: Json;
  /** Of the answer that the client gets when there is no other engine. */
  readonly status: number;
}

const refusals: readonly Refusal[] = [
  { name: "429", fault: { kind: "status", status: 429 }, status: 429 },
  { name: "503", fault: { kind: "status", status: 503 }, status: 503 },
  { name: "a broken connection", fault: { kind: "reset-before-headers" }, status: 502 },
  { name: "garbage", fault: { kind: "garbage" }, status: 502 },
];

describe.each(refusals)("a prompt that was refused by $name", ({ fault, status }) => {
  async function lone(options: { readonly events: boolean }): Promise<readonly [RunningRouter, Sim]> {
    const sims = options.events ? await publishingSims(rig, 1) : await quietSims(rig, 1);
    const config = { breaker: { "consecutive-failures": 100, "window-requests": 1_000 } };
    const router = await cacheRouter(rig, sims, { config, feeds: options.events ? 1 : 0 });
    return [router, sims[0]!];
  }

  test.each([true, false])("is not taken to be there, with events: %s", async (events) => {
    const [router, sim] = await lone({ events });
    const prompt = tokensOf(1, 200);
    await sim.fault(fault);
    expect(await complete(router, prompt)).toMatchObject({ status });
    await sim.clearFaults();
    expect(await complete(router, prompt)).toMatchObject({ status: 200, predicted: 0, cached: 0 });
    expect(await complete(router, prompt)).toMatchObject({ status: 200, predicted: 192, cached: 192 });
  });

  test.each([true, false])("leaves what was there before, with events: %s", async (events) => {
    const [router, sim] = await lone({ events });
    const common = tokensOf(1, 160);
    await complete(router, common);
    if (events) await untilHeard(router, [sim]);
    const longer = [...common, ...tokensOf(2, 160)];
    await sim.fault(fault);
    expect((await complete(router, longer)).status).toBe(status);
    await sim.clearFaults();
    expect(await complete(router, longer)).toMatchObject({ predicted: 160, cached: 160 });
  });

  test("is at the engine that took it in the end, and only there", async () => {
    const sims = await quietSims(rig, 2);
    const [refuses, takes] = sims;
    const config = {
      breaker: { "consecutive-failures": 100, "window-requests": 1_000 },
      retry: { "budget-minimum": 9 },
    };
    const router = await cacheRouter(rig, sims, { feeds: 0, config });
    await refuses!.fault(fault);
    const prompts = Array.from({ length: 6 }, (_, at) => tokensOf(at, 200));
    const first: Turn[] = [];
    for (const prompt of prompts) first.push(await complete(router, prompt));
    await refuses!.clearFaults();
    expect(first.map(({ engine }) => engine)).toEqual(prompts.map(() => takes!.id));
    expect(first.some(({ attempts }) => attempts === 2)).toBe(true);
    for (const prompt of prompts) {
      expect(await complete(router, prompt)).toMatchObject({ engine: takes!.id, predicted: 192, cached: 192 });
    }
  });
});

test.each([true, false])(
  "a prompt that is too long for the model is not taken to be there, with events: %s",
  async (events) => {
    const limits = { parameters: { maxModelLength: 256 } };
    const sims = events ? await publishingSims(rig, 1, limits) : await quietSims(rig, 1, limits);
    const router = await cacheRouter(rig, sims, { feeds: events ? 1 : 0 });
    const prompt = tokensOf(1, 400);
    expect((await complete(router, prompt)).status).toBe(400);
    expect(await complete(router, prompt.slice(0, 200))).toMatchObject({ status: 200, predicted: 0, cached: 0 });
  },
);

test("what an engine reports corrects what was guessed", async () => {
  const [sim] = await quietSims(rig, 1);
  const clock = createMovableClock();
  const router = await cacheRouter(rig, [sim!], { feeds: 0, clock, config: { prefix: { "placement-ttl": "1m" } } });
  const prompt = tokensOf(1, 200);
  await complete(router, prompt);
  for (let minute = 0; minute < 3; minute++) {
    clock.advance(59_000);
    // Each use makes it last.
    expect(await complete(router, prompt)).toMatchObject({ predicted: 192, cached: 192 });
  }
  clock.advance(61_000);
  expect(await complete(router, prompt)).toMatchObject({ predicted: 0, cached: 192 });
});

test("a prompt whose client went away is not taken to be there, for nobody knows how far its engine came; what the next one finds is", async () => {
  const sims = await publishingSims(rig, 1, { speed: 0.5 });
  const router = await cacheRouter(rig, sims);
  const prompt = tokensOf(1, 1_000);
  const request = openPost(`${router.url}/v1/completions`, { model: "tiny", prompt, max_tokens: 5 });
  await waitFor(async () => (await sims[0]!.state()).active.length === 1, { what: "request at the engine" });
  request.destroy();
  await router.untilIdle();
  await waitFor(async () => (await sims[0]!.state()).active.length === 0, { what: "idle engine" });
  expect(await complete(router, prompt)).toMatchObject({ predicted: 0, cached: 992 });
  await untilHeard(router, sims);
  expect(await complete(router, prompt)).toMatchObject({ predicted: 992, cached: 992 });
});
