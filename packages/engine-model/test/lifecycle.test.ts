import { createEngine, type EngineParameters, maxEngineRequests } from "@espalier/engine-model";
import { describe, expect, test } from "vitest";
import { createHarness, GENERATED, smallEngine, upFrom } from "./harness.ts";

const request = (id: string, prompt: readonly number[], outputTokens = 1) => ({
  id,
  promptTokens: Uint32Array.from(prompt),
  outputTokens,
  outputToken: (index: number) => GENERATED + index,
});

describe("bounds", () => {
  test.each([
    ["an empty prompt", [], 1],
    ["no output", [1, 2], 0],
    ["half a token of output", [1, 2], 1.5],
    ["a negative output", [1, 2], -1],
  ] as const)("%s is refused", (_, prompt, outputTokens) => {
    const { engine } = createHarness();
    expect(() => engine.submit(request("a", prompt, outputTokens), 0)).toThrow(RangeError);
    expect(engine.nextEventMs()).toBeUndefined();
    expect(engine.stats().waiting).toBe(0);
  });

  test("prompt plus output may reach maxModelLength, not one past", () => {
    const harness = createHarness({ maxModelLength: 20 });
    expect(harness.run("exact", upFrom(1, 17), 3).outputTokens).toBe(3);
    expect(() => harness.submit("one past", upFrom(1, 18), 3)).toThrow(/maxModelLength 20/);
  });

  test.each(["vllm", "sglang"] as const)("%s: a request may need every block, not one token more", (flavour) => {
    const harness = createHarness({ flavour, blockCount: 5, maxModelLength: 1_000 });
    expect(harness.run("exact", upFrom(1, 17), 3).outputTokens).toBe(3);
    expect(() => harness.submit("one past", upFrom(1, 18), 3)).toThrow(/all blocks/);
    expect(harness.run("again", upFrom(50, 10), 10).outputTokens).toBe(10);
  });

  test("an engine holds so many requests and not one more", () => {
    const { engine } = createHarness();
    for (let at = 0; at < maxEngineRequests; at++) engine.submit(request(`r${at}`, [1]), 0);
    expect(() => engine.submit(request("one past", [1]), 0)).toThrow(/limit of 65536 requests/);
    engine.abort("r7", 0);
    engine.submit(request("in its place", [1]), 0);
    expect(engine.stats().waiting).toBe(maxEngineRequests);
  });

  test("an id is free again when its request is gone", () => {
    const harness = createHarness();
    harness.submit("a", [1, 2, 3]);
    expect(() => harness.submit("a", [4])).toThrow(/already/);
    harness.settle();
    harness.submit("a", [4]);
    harness.settle();
    expect(harness.reports.length).toBe(2);
  });

  test("time does not run backwards", () => {
    const { engine } = createHarness();
    engine.advanceTo(10);
    expect(() => engine.advanceTo(9)).toThrow(RangeError);
    expect(() => engine.submit(request("a", [1]), 9.999)).toThrow(RangeError);
    expect(() => engine.abort("a", 1)).toThrow(RangeError);
    expect(() => engine.resetPrefixCache(1)).toThrow(RangeError);
    expect(() => engine.advanceTo(Number.NaN)).toThrow(RangeError);
    engine.submit(request("a", [1]), 10);
  });

  const wrong: Partial<EngineParameters>[] = [
    { blockSize: 0 },
    { blockCount: 2.5 },
    { stepBaseMs: 0 },
    { prefillMsPerToken: Number.POSITIVE_INFINITY },
    { decodeMsPerContextToken: -1 },
  ];
  test.each(wrong)("parameters that make no sense are refused: %o", (change) => {
    expect(() => createEngine({ parameters: { ...smallEngine, ...change }, hashSeed: 1, observer: {} })).toThrow(
      RangeError,
    );
  });
});

describe.each(["vllm", "sglang"] as const)("abort on %s", (flavour) => {
  const held = { flavour, blockCount: 16, maxBatchedTokens: 8 } as const;

  test("while it waits: reported at once, never scheduled", () => {
    const harness = createHarness({ ...held, maxRunning: 1 });
    harness.submit("a", upFrom(1, 4), 3);
    harness.engine.advanceTo(0);
    harness.submit("b", upFrom(50, 4), 3);
    harness.engine.abort("b", 0.5);
    expect(harness.report("b")).toMatchObject({ finishReason: "aborted", finishedMs: 0.5, outputTokens: 0 });
    expect(harness.report("b").scheduledMs).toBeNaN();
    expect(harness.engine.stats()).toMatchObject({ waiting: 0, running: 1 });
    harness.engine.submit(request("c", upFrom(80, 4)), 0.5);
    harness.settle();
    expect(harness.reports.map(({ id }) => id)).toEqual(["b", "a", "c"]);
  });

  test("before the engine ever started on it: nothing is left to do", () => {
    const harness = createHarness(held);
    harness.submit("a", upFrom(1, 4), 3);
    harness.engine.abort("a", 0);
    expect(harness.engine.nextEventMs()).toBeUndefined();
    expect(harness.run("b", upFrom(1, 4)).outputTokens).toBe(1);
  });

  test("in the middle of its prompt: gone at the end of the step, without a token", () => {
    const harness = createHarness(held);
    harness.submit("a", upFrom(1, 20), 3);
    harness.engine.advanceTo(0);
    harness.engine.abort("a", 0.5);
    expect(harness.reports).toEqual([]);
    harness.settle();
    expect(harness.report("a")).toMatchObject({ finishReason: "aborted", outputTokens: 0 });
    expect(harness.report("a").finishedMs).toBeCloseTo(1.08, 9);
    expect(harness.report("a").firstTokenMs).toBeNaN();
    expect(harness.engine.stats()).toMatchObject({ freeBlocks: 16, running: 0, generatedTokens: 0 });
    // What vLLM entered stays; SGLang enters a part of a prompt only when it goes on.
    expect(harness.run("again", upFrom(1, 20)).cachedTokens).toBe(flavour === "vllm" ? 8 : 0);
  });

  test("while it decodes: the token of the running step is lost, the blocks stay behind as content", () => {
    const harness = createHarness(held);
    harness.submit("a", upFrom(1, 6), 20);
    harness.engine.advanceTo(0);
    // 1.06 ms: first token; 2.16 and 3.26 ms: two more; the step that computes the 9th token runs until 4.36 ms.
    harness.engine.advanceTo(3.5);
    harness.engine.abort("a", 4);
    harness.settle();
    expect(harness.report("a")).toMatchObject({ finishReason: "aborted", outputTokens: 3 });
    expect(harness.tokens.length).toBe(3);
    expect(harness.engine.stats()).toMatchObject({ freeBlocks: 16, cachedBlocks: 2, kvUse: 0 });
    expect(harness.run("b", [...upFrom(1, 6), GENERATED, GENERATED + 1, 7]).cachedTokens).toBe(8);
  });

  test("twice, unknown, or too late: ignored", () => {
    const harness = createHarness(held);
    harness.submit("a", upFrom(1, 6), 5);
    harness.engine.advanceTo(0);
    harness.engine.abort("a", 0.1);
    harness.engine.abort("a", 0.2);
    harness.engine.abort("nobody", 0.3);
    harness.settle();
    harness.engine.abort("a", harness.nowMs());
    expect(harness.reports.length).toBe(1);
  });
});

test("thousands of requests that give up behind one that waits leave the others in order", () => {
  const harness = createHarness({ maxRunning: 1 });
  harness.submit("busy", [1, 2, 3], 4);
  harness.engine.advanceTo(0);
  harness.submit("first", [4]);
  for (let at = 0; at < 5_000; at++) {
    const priority = at % 3;
    harness.submit(`r${at}`, [5], 1, { priority });
    if (at === 2_500) harness.submit("middle", [6]);
    if (at % 100 !== 50) harness.engine.abort(`r${at}`, 0);
  }
  harness.submit("last", [7]);
  expect(harness.engine.stats()).toMatchObject({ running: 1, waiting: 3 + 50 });
  harness.settle();
  const served = harness.reports.filter(({ finishReason }) => finishReason === "length").map(({ id }) => id);
  const byPriority = (priority: number): string[] =>
    upFrom(0, 50).flatMap((at) => ((at * 100 + 50) % 3 === priority ? [`r${at * 100 + 50}`] : []));
  const early = byPriority(0).filter((id) => Number(id.slice(1)) < 2_500);
  const late = byPriority(0).filter((id) => Number(id.slice(1)) > 2_500);
  expect(served).toEqual(["busy", "first", ...early, "middle", ...late, "last", ...byPriority(1), ...byPriority(2)]);
});

test("a preempted request can be aborted while it waits for its place", () => {
  const harness = createHarness({ blockCount: 8, maxBatchedTokens: 64 });
  harness.submit("a", upFrom(100, 8), 10);
  harness.submit("b", upFrom(200, 8), 10);
  while (harness.engine.stats().preemptions === 0) harness.engine.advanceTo(harness.engine.nextEventMs()!);
  const now = harness.engine.nextEventMs()!;
  harness.engine.abort("b", now);
  expect(harness.report("b")).toMatchObject({ finishReason: "aborted", preemptions: 1, finishedMs: now });
  harness.settle();
  expect(harness.engine.stats()).toMatchObject({ finished: 2, freeBlocks: 8, waiting: 0 });
});

test("an observer may hand in and drop requests at the time of the call", () => {
  const finished: string[] = [];
  let rounds = 0;
  const engine = createEngine({
    parameters: smallEngine,
    hashSeed: 1,
    observer: {
      token(id, index, _token, timeMs) {
        if (id === "dropped" && index === 1) engine.abort(id, timeMs);
        if (id === "future") expect(() => engine.advanceTo(timeMs + 1)).toThrow(RangeError);
      },
      finished({ id, finishedMs }) {
        finished.push(id);
        if (rounds++ < 3) engine.submit(request(`round ${rounds}`, upFrom(rounds, 5), 2), finishedMs);
      },
    },
  });
  engine.submit(request("dropped", [1, 2, 3], 9), 0);
  engine.submit(request("future", [4, 5, 6], 1), 0);
  engine.advanceTo(1_000);
  expect(finished).toEqual(["future", "dropped", "round 1", "round 2", "round 3"]);
});

test("the caller may reuse the array of a prompt", () => {
  const harness = createHarness();
  const promptTokens = Uint32Array.from(upFrom(1, 9));
  harness.engine.submit({ id: "a", promptTokens, outputTokens: 1, outputToken: () => 0 }, 0);
  promptTokens.fill(0);
  harness.settle();
  expect(harness.run("b", upFrom(1, 9)).cachedTokens).toBe(8);
});
