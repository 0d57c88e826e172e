/** Requests that two engines serve: their legs, what they hold meanwhile, and what is left when one of them fails. */
import type { EngineRole } from "@espalier/core";
import { expect, test } from "vitest";
import { kvLinkOf } from "../../src/fleet/sim-router.ts";
import { createRouterRig, hopDelayMs, idleLoad, type RouterRig } from "./router-rig.ts";

const second = 1_000;
const roles: readonly EngineRole[] = ["prefill", "decode", "decode"];
const link = { setupMs: 30, msPerToken: 0.01 };
const fixed = { link, thresholdTokens: 1_000, minTokens: 1_000, maxTokens: 1_000 };
/** Of a prompt of 1,600 tokens: a step of 6 ms, 8 tokens a millisecond. */
const promptTokens = 1_600;
const prefillMs = 6 + promptTokens / 8;

const pinned = ({ engines }: RouterRig): number[] => engines.map((engine) => engine.stats().pinned);
const held = ({ engines }: RouterRig): number[] => engines.map((engine) => engine.stats().kvUse);

test("one engine computes the prompt and another one answers; nothing is held afterwards", async () => {
  const rig = await createRouterRig({ roles, split: fixed });
  rig.send({ index: 0, promptTokens });
  rig.time.advance(2 * hopDelayMs + prefillMs + 1);
  expect(pinned(rig)).toEqual([1, 0, 0]);
  rig.time.advance(5 * second);
  const [outcome] = rig.outcomes;
  expect(outcome).toMatchObject({ error: undefined, prefillEngine: 0, cachedTokens: 0, predictedTokens: 0 });
  expect([1, 2]).toContain(outcome!.engine);
  // Two legs with their hops, the transfer, and a step for the last token of the prompt.
  const transferMs = link.setupMs + link.msPerToken * promptTokens;
  expect(outcome!.firstTokenMs).toBeGreaterThanOrEqual(4 * hopDelayMs + prefillMs + transferMs);
  expect(outcome!.firstTokenMs).toBeLessThan(4 * hopDelayMs + prefillMs + transferMs + 10);
  expect(rig.load()).toEqual(idleLoad);
  expect([pinned(rig), held(rig)]).toEqual([
    [0, 0, 0],
    [0, 0, 0],
  ]);
  expect(rig.engines[outcome!.engine]!.stats()).toMatchObject({ importedTokens: promptTokens - 1 });
});

test("a shorter prompt goes to one engine, which is not one that only prefills", async () => {
  const rig = await createRouterRig({ roles, split: fixed });
  for (let index = 0; index < 4; index++) rig.send({ index, promptTokens: 990 });
  rig.time.advance(5 * second);
  expect(rig.outcomes.map(({ prefillEngine }) => prefillEngine)).toEqual(Array(4).fill(undefined));
  expect(new Set(rig.outcomes.map(({ engine }) => engine))).toEqual(new Set([1, 2]));
});

test("a prefix that the prefill engine holds is found there again, and counts as cached", async () => {
  const rig = await createRouterRig({ roles, split: { ...fixed, thresholdTokens: 0 } });
  rig.send({ index: 0, session: 7, promptTokens });
  rig.time.advance(5 * second);
  rig.send({ index: 1, session: 7, promptTokens });
  rig.time.advance(5 * second);
  expect(rig.outcomes[1]).toMatchObject({ prefillEngine: 0, predictedTokens: 1_584, cachedTokens: 1_584 });
});

test("a prefill engine that goes away, before and while it computes, leaves the request to one engine", async () => {
  for (const atMs of [0, hopDelayMs + 20]) {
    const rig = await createRouterRig({ roles, split: fixed });
    rig.send({ index: 0, promptTokens });
    rig.time.advance(atMs);
    rig.engines[0]!.kill();
    rig.time.advance(5 * second);
    expect(rig.outcomes).toEqual([expect.objectContaining({ error: undefined, isSpill: true })]);
    expect(rig.outcomes[0]!.prefillEngine).toBeUndefined();
    expect([rig.load(), rig.router.inFlight]).toEqual([idleLoad, 0]);
    expect(held(rig)).toEqual([0, 0, 0]);
  }
});

test("a decode engine that goes away while it fetches: the other one fetches the same, and then the blocks are let go", async () => {
  const rig = await createRouterRig({ roles, split: fixed });
  rig.send({ index: 0, promptTokens });
  rig.time.advance(3 * hopDelayMs + prefillMs + 10);
  const decode = rig.engines.find((engine) => engine.stats().importing > 0)!;
  decode.kill();
  rig.time.advance(hopDelayMs + 1);
  expect(pinned(rig)).toEqual([1, 0, 0]);
  rig.time.advance(5 * second);
  expect(rig.outcomes).toEqual([expect.objectContaining({ error: undefined, prefillEngine: 0, isSpill: true })]);
  expect(rig.outcomes[0]!.engine).not.toBe(decode.number);
  expect([rig.load(), held(rig)]).toEqual([idleLoad, [0, 0, 0]]);
});

test("the death of a router ends both legs, wherever they stand", async () => {
  for (const atMs of [0, hopDelayMs + 20, 2 * hopDelayMs + prefillMs + 1, 3 * hopDelayMs + prefillMs + 10, 400]) {
    const rig = await createRouterRig({ roles, split: fixed });
    rig.send({ index: 0, promptTokens, outputTokens: 100 });
    rig.time.advance(atMs);
    rig.router.die();
    rig.time.advance(second);
    expect(rig.outcomes.map(({ error }) => error)).toEqual(["the router went away"]);
    expect([pinned(rig), held(rig)]).toEqual([
      [0, 0, 0],
      [0, 0, 0],
    ]);
  }
});

test("without a second engine one does it; without any that answers, none does", async () => {
  const alone = await createRouterRig({ engines: 1, split: { ...fixed, thresholdTokens: 0 } });
  alone.send({ index: 0, promptTokens });
  alone.time.advance(5 * second);
  expect(alone.outcomes[0]).toMatchObject({ error: undefined, engine: 0 });
  expect(alone.outcomes[0]!.prefillEngine).toBeUndefined();
  const none = await createRouterRig({ engines: 1, roles: ["prefill"], split: fixed });
  none.send({ index: 0, promptTokens });
  none.time.advance(second);
  expect(none.outcomes[0]).toMatchObject({ error: "no engine is available" });
});

test("what transfers take is learned, and the threshold follows the answers that would stand still", async () => {
  const split = { link, thresholdTokens: undefined, minTokens: 1_000, maxTokens: 100_000 };
  const rig = await createRouterRig({ roles: ["prefill", "decode"], engines: 2, split });
  rig.send({ index: 0, promptTokens });
  rig.time.advance(5 * second);
  expect(rig.outcomes[0]!.prefillEngine).toBeUndefined();
  for (let index = 1; index < 9; index++) {
    rig.send({ index, promptTokens: 160, outputTokens: 1_000 });
    rig.time.advance(100);
  }
  const believedMs = rig.router.split!.rolesOf(rig.router.pool).cost.ms(promptTokens);
  rig.send({ index: 9, promptTokens });
  rig.time.advance(20 * second);
  expect(rig.outcomes.filter(({ prefillEngine }) => prefillEngine === 0)).toHaveLength(1);
  expect(rig.router.split!.rolesOf(rig.router.pool).cost.ms(promptTokens)).toBeGreaterThan(believedMs);
});

test("the time of a token on a link: 327,680 bytes at 40 GB/s", () => {
  expect(kvLinkOf({ setupMs: 10, bytesPerS: 4e10 }, 327_680)).toEqual({ setupMs: 10, msPerToken: 8.192 / 1_000 });
});
