import { EspalierError } from "@espalier/core";
import type { SideOutcome } from "@espalier/engines";
import { Dispatch, type PrefillOutcome } from "@espalier/routing";
import { expect, test } from "vitest";
import { PrefillLeg } from "../../src/serving/prefill-leg.ts";
import { answered, choosePair, failed, type SplitRig, splitRig } from "./split-rig.ts";

const engines = { p: ["prefill", "nixl"], d: ["decode", "nixl"] } as const;
const untried = { any: new Set<string>(), prefill: new Set<string>() };

interface BegunLeg {
  readonly leg: PrefillLeg;
  readonly outcome: Promise<PrefillOutcome>;
}

function begin(rig: SplitRig, keptBytes = 100): BegunLeg {
  const plan = rig.plan();
  const pair = choosePair(rig.context, plan, untried);
  if (!pair.protocol) throw new Error("no pair");
  const dispatch = new Dispatch(rig.context.prefix.knowledge, plan, pair.prefill, { expectedOutputTokens: 1 });
  let settled: (outcome: PrefillOutcome) => void = () => {};
  const outcome = new Promise<PrefillOutcome>((resolve) => {
    settled = resolve;
  });
  const leg = new PrefillLeg(rig.context, {
    resends: { isResent: false, broke() {}, redial: () => false },
    ...{ plan, dispatch, body: [Buffer.from("{}")], headers: ["x-leg", "1"], keptBytes, settled },
    onDefect: (thrown) => {
      throw thrown;
    },
  });
  return { leg, outcome };
}

async function settle(rig: SplitRig, outcome: SideOutcome): Promise<PrefillOutcome> {
  const begun = begin(rig);
  rig.legs.at(-1)!.settle(outcome);
  return begun.outcome;
}

const rigOf = () => splitRig({ engines, options: { minTokens: 1, maxTokens: 1 } });

/** Failures in a row that open a breaker, by default. */
const openAfter = 5;

test.each<readonly [string, SideOutcome, string]>([
  ["fails", failed, "open"],
  ["answers with 500", answered({}, 500), "open"],
  ["answers with 503", answered({}, 503), "open"],
  ["answers with 200 and an error", answered({ error: { message: "EngineCore", code: 500 } }), "open"],
  ["answers with 200 and a refusal", answered({ error: { message: "no", code: 400 } }), "closed"],
  ["answers with 429", answered({}, 429), "closed"],
  ["answers with 400", answered({}, 400), "closed"],
  ["answers", answered({}), "closed"],
  ["is cancelled", { kind: "cancelled" }, "closed"],
  [
    "is not asked, because too many wait for it",
    { kind: "failed", failure: "overloaded", error: new EspalierError("overloaded") },
    "closed",
  ],
])("an engine that %s again and again: its breaker", async (_, outcome, state) => {
  const rig = await rigOf();
  for (let time = 0; time < openAfter; time++) await settle(rig, outcome);
  expect(rig.fleet.engine("p").breaker.state).toBe(state);
});

test("an answer of 200 that is an error computed nothing: the leg has failed", async () => {
  const rig = await rigOf();
  const body = { object: "error", message: "The request queue is full.", code: 503 };
  expect(await settle(rig, answered(body))).toEqual({ isDone: false, answer: undefined });
});

test("what came before the end is told, once", async () => {
  const rig = await rigOf();
  const { leg, outcome } = begin(rig);
  rig.legs[0]!.settle(answered({ a: 1 }));
  expect(await outcome).toEqual({ isDone: true, answer: Buffer.from('{"a":1}') });
  leg.cancel();
});

test("it goes where the client's request would, with the pool's credentials and the leg's own headers", async () => {
  const rig = await rigOf();
  begin(rig, 7);
  expect(rig.legs[0]!.request).toMatchObject({
    ...{ method: "POST", path: "/v1/chat/completions", headers: ["x-request-id", "r-1"], keptBytes: 7 },
    upstream: { url: "http://p:8000", headers: ["authorization", "Bearer engines", "x-leg", "1"] },
  });
});

test("what it found in the engine's cache is not charged", async () => {
  const rig = await rigOf();
  rig.matched.p = 6_000;
  begin(rig);
  expect(rig.fleet.target("p").load.pendingPrefillTokens).toBe(2_000);
});
