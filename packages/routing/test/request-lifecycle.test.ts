/** One request from its arrival to its end; the rules of two engines for one request are tested where those are carried over HTTP. */

import { createSeededRandom, type EspalierError, silentMeter } from "@espalier/core";
import { createPolicy } from "@espalier/policies";
import { createVirtualTime, promptOf, tokensOf } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { createAdmission } from "../src/admission/admission.ts";
import { createAdmissionMeters } from "../src/admission/admission-meters.ts";
import { noPeerLoad } from "../src/admission/admission-request.ts";
import { noFleetUsage } from "../src/admission/fair-share.ts";
import { defaultAdmissionSettings } from "../src/admission/settings.ts";
import type { PrefixKnowledge } from "../src/prefix/prefix-knowledge.ts";
import { createRetryBudget, createRetryMeters, Retries } from "../src/request/retries.ts";
import { RequestLifecycle, type RequestQueue } from "../src/request-lifecycle.ts";
import { createTargetSelector } from "../src/select-target.ts";
import { type ScriptedTarget, scriptedTarget } from "./scripted-target.ts";

const features = { promptTokens: 100, expectedOutputTokens: 10, sessionKey: undefined, prefixKey: undefined };
const answered = { isCompleted: true, status: 200, isStream: true, cachedTokens: 48, outputTokens: 7 };
const gone = { isCompleted: false, status: 0, isStream: false, cachedTokens: undefined, outputTokens: 0 };

function rig(count = 2, waits = false) {
  const time = createVirtualTime();
  const targets = Array.from({ length: count }, (_, at) => scriptedTarget(at, "abcdef"[at]!));
  const placements: string[] = [];
  const knowledge: Pick<PrefixKnowledge, "place" | "reported" | "match" | "describe"> = {
    reported() {},
    match() {},
    describe() {},
    place({ key }) {
      const note = (what: string) => (tokens?: number) => void placements.push(`${what} ${key} ${tokens ?? ""}`.trim());
      note("place")();
      return { computed: note("computed"), withdraw: note("withdraw"), answered: note("answered") };
    },
  };
  const selector = createTargetSelector({ random: createSeededRandom(1), knowledge: knowledge as PrefixKnowledge });
  const pool = { policy: createPolicy("least_connections") };
  const routed = { features, prompt: promptOf(tokensOf("a", 100)) };
  const budget = createRetryBudget(time.clock);
  const settings = { ...defaultAdmissionSettings, maxQueued: 1 };
  const admission = createAdmission<ScriptedTarget>({
    ...{ settings, clock: time.clock, scheduler: time.scheduler, meters: createAdmissionMeters(silentMeter) },
    ...{ others: noPeerLoad, fleet: noFleetUsage },
  });
  const queue: RequestQueue<ScriptedTarget> = {
    ...{ admission, cold: undefined },
    request: {
      ...features,
      className: undefined,
      tenant: "",
      sizeBytes: 1,
      deadlineMs: undefined,
      onlyEngine: undefined,
    },
  };
  const reported: string[] = [];
  const create = (): RequestLifecycle<ScriptedTarget> => {
    const lifecycle: RequestLifecycle<ScriptedTarget> = new RequestLifecycle({
      ...{ clock: time.clock, knowledge, planner: undefined, queue: waits ? queue : undefined },
      request: { ...routed, pool, targets },
      retries: new Retries(budget, createRetryMeters(silentMeter)),
      carrier: {
        targets: () => targets,
        select: (among, restriction) => selector.select(pool, among, routed, restriction),
        uncachedTokens: () => selector.uncachedTokens(targets, routed),
        isStream: true,
        prepare: (_, ready) => ready(false),
        prefill: () => ({ cancel() {} }),
        handOver: () => false,
        withdraw() {},
        resume() {},
        admitted: () => void reported.push("admitted"),
        shed: ({ code }: EspalierError) => void reported.push(code),
      },
    });
    return lifecycle;
  };
  const loads = (): number[] => targets.map(({ load }) => load.inFlight);
  return { time, targets, placements, reported, knowledge, create, loads };
}

/** The target of the next attempt, which goes out. */
function attempt(lifecycle: RequestLifecycle<ScriptedTarget>): string | undefined {
  const next = lifecycle.next();
  if (next === "later") throw new Error("nothing has to be waited for");
  if (next) lifecycle.started();
  return next?.dispatch.target.key;
}

describe("a request", () => {
  test("is charged when its target is chosen, and gives everything back at its end", () => {
    const { create, targets, placements, loads } = rig(1);
    const lifecycle = create();
    lifecycle.enter();
    expect([attempt(lifecycle), loads(), targets[0]!.load.pendingPrefillTokens]).toEqual(["a", [1], 100]);
    lifecycle.answering(200);
    lifecycle.firstToken(true);
    lifecycle.progress(7);
    const { pendingPrefillTokens, decodeTokens } = targets[0]!.load;
    expect([pendingPrefillTokens, decodeTokens]).toEqual([0, 107]);
    lifecycle.finish(answered);
    expect([loads(), targets[0]!.load.decodeTokens, lifecycle.attempts]).toEqual([[0], 0, 1]);
    expect(placements).toEqual(["place a", "computed a", "answered a 48"]);
  });

  /** A target was charged before something that can throw, and was taken to be busy for ever. */
  test("whose placement throws charges no target", () => {
    const { create, loads, knowledge } = rig(2);
    knowledge.place = () => {
      throw new Error("defect");
    };
    const lifecycle = create();
    lifecycle.enter();
    expect(() => lifecycle.next()).toThrow("defect");
    lifecycle.finish(gone);
    expect(loads()).toEqual([0, 0]);
  });

  test("that failed at a target is not sent there again, and with all tried nobody is left", () => {
    const { create, loads, placements } = rig(3);
    const lifecycle = create();
    lifecycle.enter();
    const asked = [1, 2, 3].map(() => {
      const key = attempt(lifecycle);
      lifecycle.failed("connect", false);
      return key;
    });
    expect([asked.sort(), attempt(lifecycle)]).toEqual([["a", "b", "c"], undefined]);
    lifecycle.finish(gone);
    expect(loads()).toEqual([0, 0, 0]);
    expect(placements.filter((what) => what.startsWith("withdraw"))).toHaveLength(3);
  });

  test.each(["declined", "withdrawn"] as const)("whose attempt was %s may go there again", (kind) => {
    const lifecycle = rig(1).create();
    lifecycle.enter();
    expect(attempt(lifecycle)).toBe("a");
    lifecycle.failed(kind, false);
    expect(attempt(lifecycle)).toBe("a");
  });

  test("whose target cannot be asked after all goes elsewhere, and that was no attempt", () => {
    const { create, loads } = rig(2);
    const lifecycle = create();
    lifecycle.enter();
    const first = lifecycle.next();
    lifecycle.skipped();
    expect([loads(), lifecycle.attempts]).toEqual([[0, 0], 0]);
    expect(attempt(lifecycle)).not.toBe(first !== "later" && first?.dispatch.target.key);
  });

  test("that broke two engines goes to no third", () => {
    const lifecycle = rig(3).create();
    lifecycle.enter();
    lifecycle.retries.broke();
    expect(attempt(lifecycle)).toBeDefined();
    lifecycle.retries.broke();
    expect(attempt(lifecycle)).toBeUndefined();
  });

  test("that is refused leaves no guess behind, though bytes of the refusal come", () => {
    const { create, placements } = rig(1);
    const lifecycle = create();
    lifecycle.enter();
    attempt(lifecycle);
    lifecycle.answering(429);
    lifecycle.firstToken(false);
    lifecycle.finish({ ...answered, status: 429 });
    expect(placements).toEqual(["place a", "withdraw a", "answered a"]);
  });

  test("whose client goes before the first token leaves no guess behind; after it, what was computed", () => {
    const { create, placements, loads } = rig(1);
    const [early, late] = [create(), create()];
    for (const lifecycle of [early, late]) {
      lifecycle.enter();
      attempt(lifecycle);
    }
    early.finish(gone);
    late.firstToken(true);
    late.finish(gone);
    expect(placements).toEqual(["place a", "place a", "withdraw a", "answered a", "computed a", "answered a"]);
    expect(loads()).toEqual([0]);
  });
});

describe("where engines are busy", () => {
  test("it waits for its turn, and says how long; one that leaves, and one too many, take nothing", () => {
    const { create, reported, time, targets } = rig(1, true);
    const busy = Array.from({ length: 2_000 }, () => targets[0]!.load.begin(features));
    const [waiting, excess] = [create(), create()];
    waiting.enter();
    excess.enter();
    expect(reported).toEqual(["queue_full"]);
    waiting.leave();
    waiting.finish(gone);
    const next = create();
    next.enter();
    time.advance(50);
    expect([reported, next.queuedMs]).toEqual([["queue_full"], 0]);
    for (const ticket of busy) ticket.end();
    time.advance(100);
    expect(reported).toEqual(["queue_full", "admitted"]);
    expect(next.queuedMs).toBeGreaterThanOrEqual(50);
    expect(attempt(next)).toBe("a");
    next.finish(answered);
    expect(targets[0]!.load.inFlight).toBe(0);
  });
});
