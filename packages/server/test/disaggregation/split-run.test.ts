import { PoolWork } from "@espalier/routing";
import { describe, expect, test } from "vitest";
import { type LegBody, SplitSource } from "../../src/request/planned-request.ts";
import {
  answered,
  bodyOf,
  bodyOfLeg,
  chatBody,
  failed,
  type SplitRig,
  SplitRun,
  type SplitStep,
  splitRig,
} from "./split-rig.ts";

const low = { minTokens: 1_000, maxTokens: 1_000 };
const none = new Set<string>();
const nixlPair = { p: ["prefill", "nixl"], d: ["decode", "nixl"] } as const;
const sglangPair = { p: ["prefill", "sglang"], d: ["decode", "sglang"] } as const;
const kept = { do_remote_prefill: true, remote_engine_id: "p", remote_block_ids: [[1]] };
const prefilled = answered({ choices: [{ finish_reason: "length" }], kv_transfer_params: kept });
const done = { isAnswered: true, selection: undefined, outputTokens: 10, writingMs: 0 };
const gone = { ...done, isAnswered: false };

const counted = ({ meter }: SplitRig, path: string, reason: string) =>
  meter.value("espalier_disaggregation_requests_total", path, reason);
const settled = (rig: SplitRig) => rig.fleet.time.advanceAsync(0);

function atOnce(step: ReturnType<SplitRun["next"]>): SplitStep | undefined {
  if (step instanceof Promise) throw new Error("the next step is not known yet");
  return step;
}

test("each leg is told what its engine computes: the prompt as far as it has to, or nothing", async () => {
  const rig = await splitRig({ engines: nixlPair, options: low });
  rig.matched.p = 2_000;
  const { pool, split } = rig.plan();
  const work = new PoolWork(rig.fleet.time.clock);
  const expectedMs = work.rates.workMs(rig.fleet.target("p"), { uncachedTokens: 6_000, matchedTokens: 2_000 });
  expect(expectedMs).toBeGreaterThan(700);
  const received: LegBody[] = [];
  const edit: SplitSource["edit"] = (set, leg) => {
    received.push(leg);
    return split!.edit(set, leg);
  };
  const run = new SplitRun(
    rig.context,
    rig.plan({ pool: { ...pool, work }, split: new SplitSource(split!.view, edit) }),
  );
  const next = run.next(none);
  rig.legs[0]!.settle(prefilled);
  await next;
  expect(received).toEqual([
    { isAnswer: false, workMs: expectedMs },
    { isAnswer: true, workMs: 0 },
  ]);
  run.finish(gone);
});

describe("one leg after the other", () => {
  test("the decode leg goes out with what the prefill leg brought; loads are charged and released", async () => {
    const rig = await splitRig({ engines: nixlPair, options: low });
    const run = new SplitRun(rig.context, rig.plan());
    const next = run.next(none);
    expect(next).toBeInstanceOf(Promise);
    expect([rig.legs.map(({ engine }) => engine), rig.inFlight()]).toEqual([["p"], { p: 1, d: 1 }]);
    expect(rig.fleet.target("p").load.pendingPrefillTokens).toBe(8_000);
    expect(rig.fleet.target("d").load.pendingPrefillTokens).toBe(1);
    expect(bodyOfLeg(rig.legs[0]!)).toMatchObject({ max_tokens: 1, stream: false, messages: chatBody.messages });
    expect(rig.legs[0]!.request.upstream.headers).toEqual(["authorization", "Bearer engines"]);
    expect(run.prefillEngine).toBeUndefined();

    await rig.fleet.time.advanceAsync(100);
    rig.legs[0]!.settle(prefilled);
    const step = await next;
    expect([step?.selection.target.key, run.prefillEngine, rig.inFlight()]).toEqual(["d", "p", {}]);
    expect(bodyOf(step)).toEqual({ ...chatBody, kv_transfer_params: kept });
    run.started(() => {});
    await rig.fleet.time.advanceAsync(30);
    run.judge(200, Buffer.from("{"), false);
    run.firstByte();
    run.finish(done);
    expect(rig.placements).toEqual(["place p", "computed p", "answered p"]);
    expect(counted(rig, "disaggregated", "threshold")).toBe(1);
    expect(rig.context.split.planner.rolesOf(rig.plan().pool).cost.ms(8_000)).toBeLessThan(124);
  });

  test.each([
    ["fails", failed, "prefill_failed"],
    ["refuses", answered({}, 503), "prefill_failed"],
    ["finds the request wrong", answered({}, 400), "prefill_failed"],
    ["answers with nothing to fetch", answered({ choices: [] }), "nothing_transferred"],
    ["answers at too great a length", answered(undefined), "nothing_transferred"],
  ])("a prefill engine that %s: one engine", async (_, outcome, reason) => {
    const rig = await splitRig({ engines: nixlPair, options: low });
    const run = new SplitRun(rig.context, rig.plan());
    const next = run.next(none);
    rig.legs[0]!.settle(outcome);
    expect(await next).toBeUndefined();
    expect([run.prefillEngine, atOnce(run.next(none)), rig.inFlight()]).toEqual([undefined, undefined, {}]);
    run.finish(done);
    expect(counted(rig, "aggregated", reason)).toBe(1);
  });

  test("a decode engine that fails: another one fetches the same; with none left, one engine", async () => {
    const rig = await splitRig({ engines: { ...nixlPair, d2: ["decode", "nixl"], b: ["both"] }, options: low });
    const run = new SplitRun(rig.context, rig.plan());
    const next = run.next(none);
    rig.legs[0]!.settle(prefilled);
    const first = await next;
    const key = first?.selection.target.key ?? "";
    run.failed("reset");
    const second = atOnce(run.next(new Set([key])));
    expect(second?.selection.target.key).toBe(key === "d" ? "d2" : "d");
    expect(bodyOf(second)).toEqual(bodyOf(first));
    run.failed("reset");
    expect(atOnce(run.next(new Set(["d", "d2"])))).toBeUndefined();
    run.finish(done);
    expect([rig.legs.length, counted(rig, "aggregated", "decode_failed")]).toEqual([1, 1]);
  });

  test("a client that goes away ends the prefill, and no decode leg follows", async () => {
    const rig = await splitRig({ engines: nixlPair, options: low });
    const run = new SplitRun(rig.context, rig.plan());
    const next = run.next(none);
    run.finish(gone);
    expect([rig.legs[0]!.isCancelled, await next]).toEqual([true, undefined]);
    expect([rig.inFlight(), rig.placements]).toEqual([{}, ["place p", "withdraw p", "answered p"]]);
  });

  test("a decode engine that is gone when the prompt is computed is replaced", async () => {
    const rig = await splitRig({ engines: { ...nixlPair, d2: ["decode", "nixl"] }, options: low });
    rig.matched.d = 100;
    const run = new SplitRun(rig.context, rig.plan());
    const next = run.next(none);
    rig.fleet.fleet.setDraining(rig.fleet.engine("d").id, true);
    rig.legs[0]!.settle(prefilled);
    expect((await next)?.selection.target.key).toBe("d2");
    run.finish(gone);
  });

  test("a request that was over before anything was decided counts for nothing", async () => {
    const rig = await splitRig({ engines: nixlPair, options: low });
    new SplitRun(rig.context, rig.plan()).finish(gone);
    expect(counted(rig, "aggregated", "unsupported")).toBeUndefined();
  });

  test("an engine that is left alone is chosen once", async () => {
    const rig = await splitRig({ engines: nixlPair, options: low });
    rig.matched.d = 7_900;
    const run = new SplitRun(rig.context, rig.plan());
    const step = atOnce(run.next(none));
    expect([step?.selection.target.key, step?.leg]).toEqual(["d", undefined]);
    run.finish(done);
    expect(counted(rig, "aggregated", "below_threshold")).toBe(1);
  });
});

describe("both legs at once", () => {
  test("the prefill leg goes out with the decode leg, and is not cut off by its end", async () => {
    const rig = await splitRig({ engines: sglangPair });
    const run = new SplitRun(rig.context, rig.plan());
    const step = atOnce(run.next(none));
    expect(rig.legs).toEqual([]);
    run.started(() => {});
    expect([rig.legs.map(({ engine }) => engine), run.prefillEngine]).toEqual([["p"], "p"]);
    expect(bodyOfLeg(rig.legs[0]!)).toEqual(bodyOf(step));
    expect(rig.legs[0]!.request.keptBytes).toBe(4_096);
    run.firstByte();
    run.finish(done);
    expect([rig.legs[0]!.isCancelled, rig.inFlight()]).toEqual([false, { p: 1 }]);
    rig.legs[0]!.settle(answered(undefined));
    await settled(rig);
    expect([rig.inFlight(), counted(rig, "disaggregated", "required")]).toEqual([{}, 1]);
  });

  test("a prefill leg that fails withdraws the decode leg, and another prefill engine is asked", async () => {
    const rig = await splitRig({ engines: { ...sglangPair, p2: ["prefill", "sglang"] } });
    const run = new SplitRun(rig.context, rig.plan());
    const first = atOnce(run.next(none));
    let withdrawn = 0;
    run.started(() => void withdrawn++);
    const [leg] = rig.legs;
    leg!.settle(failed);
    await settled(rig);
    expect(withdrawn).toBe(1);
    run.failed("withdrawn");
    const second = atOnce(run.next(none));
    run.started(() => void withdrawn++);
    expect(rig.legs[1]!.engine).toBe(leg!.engine === "p" ? "p2" : "p");
    expect(bodyOf(second).bootstrap_room).not.toBe(bodyOf(first).bootstrap_room);
    rig.legs[1]!.settle(failed);
    await settled(rig);
    run.failed("withdrawn");
    expect(atOnce(run.next(none))).toBeUndefined();
    run.finish(gone);
    expect([withdrawn, counted(rig, "aggregated", "prefill_failed")]).toEqual([2, 1]);
  });

  test("one that fails after the answer has begun changes nothing", async () => {
    const rig = await splitRig({ engines: sglangPair });
    const run = new SplitRun(rig.context, rig.plan());
    run.next(none);
    let withdrawn = 0;
    run.started(() => void withdrawn++);
    run.firstByte();
    rig.legs[0]!.settle(failed);
    await settled(rig);
    run.finish(done);
    expect([withdrawn, counted(rig, "disaggregated", "required")]).toEqual([0, 1]);
  });

  test("a decode engine that refuses ends the prefill; no more than three pairs are tried", async () => {
    const decoders = Object.fromEntries([1, 2, 3, 4, 5].map((at) => [`d${at}`, ["decode", "sglang"] as const]));
    const rig = await splitRig({ engines: { p: ["prefill", "sglang"], ...decoders } });
    const run = new SplitRun(rig.context, rig.plan());
    const tried = new Set<string>();
    for (let step = atOnce(run.next(tried)); step; step = atOnce(run.next(tried))) {
      run.started(() => {});
      tried.add(step.selection.target.key);
      run.failed("status");
    }
    expect([tried.size, rig.legs.map(({ isCancelled }) => isCancelled)]).toEqual([3, [true, true, true]]);
    await settled(rig);
    expect(rig.inFlight()).toEqual({});
  });

  test("a client that has no answer in the end ends the prefill", async () => {
    const rig = await splitRig({ engines: sglangPair });
    const run = new SplitRun(rig.context, rig.plan());
    run.next(none);
    run.started(() => {});
    run.finish(gone);
    await settled(rig);
    expect([rig.legs[0]!.isCancelled, rig.inFlight()]).toEqual([true, {}]);
  });
});

describe("the decode engine first", () => {
  const engines = { p: ["prefill", "shared-storage"], d: ["decode", "shared-storage"] } as const;
  const short = Buffer.from('{"choices":[{"finish_reason":"cache_threshold"}]}');

  test("one that finds enough answers alone", async () => {
    const rig = await splitRig({ engines, options: low });
    const run = new SplitRun(rig.context, rig.plan());
    const step = atOnce(run.next(none));
    expect(bodyOf(step)).toEqual({ ...chatBody, cache_hit_threshold: 0.875 });
    run.started(() => {});
    expect(run.judge(200, Buffer.from('{"choices":[{"finish_reason":"stop"}]}'), true)).toBe("pass");
    run.firstByte();
    run.finish(done);
    expect([rig.legs, counted(rig, "aggregated", "cached")]).toEqual([[], 1]);
  });

  test("one that finds too little is asked again when the prompt is computed", async () => {
    const rig = await splitRig({ engines, options: low });
    const run = new SplitRun(rig.context, rig.plan());
    atOnce(run.next(none));
    expect(run.judge(200, short, true)).toBe("decline");
    run.failed("declined");
    const next = run.next(none);
    rig.legs[0]!.settle(answered({}));
    const step = await next;
    expect([step?.selection.target.key, run.prefillEngine]).toEqual(["d", "p"]);
    expect(bodyOf(step)).toMatchObject({ cache_hit_threshold: 0 });
    expect(run.judge(200, short, true)).toBe("pass");
    run.finish(done);
    expect(counted(rig, "disaggregated", "threshold")).toBe(1);
  });

  test("one that fails is no reason to compute the prompt elsewhere", async () => {
    const rig = await splitRig({ engines: { ...engines, b: ["both"] }, options: low });
    const run = new SplitRun(rig.context, rig.plan());
    run.next(none);
    expect(run.judge(500, Buffer.from("x"), false)).toBe("decline");
    run.failed("declined");
    expect(atOnce(run.next(none))).toBeUndefined();
    run.finish(done);
    expect([rig.legs, counted(rig, "aggregated", "decode_failed")]).toEqual([[], 1]);
  });
});

describe("a name that has to be asked for", () => {
  const engines = { p: ["prefill", "mooncake"], d: ["decode", "mooncake"], b: ["both"] } as const;
  const names = JSON.stringify({ 0: { engine_id: "name-of-p" } });

  test("is asked once", async () => {
    const rig = await splitRig({ engines, options: low });
    rig.fleet.answers.p = { "/query": names };
    const first = await new SplitRun(rig.context, rig.plan()).next(none);
    expect(bodyOf(first)).toMatchObject({
      kv_transfer_params: { remote_engine_id: "name-of-p", remote_bootstrap_addr: "http://p:8998" },
    });
    expect(atOnce(new SplitRun(rig.context, rig.plan()).next(none))).toBeDefined();
    expect(rig.fleet.asked("p").filter((asked) => asked.startsWith("/query"))).toHaveLength(1);
  });

  test.each([
    ["is not there", 404],
    ["is no JSON", "oops"],
    ["is for other ranks", JSON.stringify({ 1: { engine_id: "x" } })],
    ["is no name", JSON.stringify({ 0: { engine_id: 5 } })],
    ["is nothing", "null"],
    ["cannot be asked for", "refused"],
  ] as const)("one that %s: one engine", async (_, answer) => {
    const rig = await splitRig({ engines, options: low });
    rig.fleet.answers.p = { "/query": answer };
    const run = new SplitRun(rig.context, rig.plan());
    expect(await run.next(none)).toBeUndefined();
    run.finish(done);
    expect(counted(rig, "aggregated", "prefill_failed")).toBe(1);
  });

  test("is asked again of an engine that failed, or that was gone", async () => {
    const rig = await splitRig({ engines, options: low });
    rig.fleet.answers.p = { "/query": names };
    const run = new SplitRun(rig.context, rig.plan());
    await run.next(none);
    run.started(() => {});
    rig.legs[0]!.settle(failed);
    await settled(rig);
    run.finish(gone);
    expect(new SplitRun(rig.context, rig.plan()).next(none)).toBeInstanceOf(Promise);
    await settled(rig);
    expect(atOnce(new SplitRun(rig.context, rig.plan()).next(none))).toBeDefined();
    const target = rig.fleet.target("p");
    await rig.fleet.apply();
    expect(rig.context.split.peers.idOf(target, "http://p:8998/query")).toBeInstanceOf(Promise);
  });
});
