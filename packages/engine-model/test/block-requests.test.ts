import { type BlockChanges, blockChange, createBlockEngine, maxEngineRequests } from "@espalier/engine-model";
import { describe, expect, test } from "vitest";
import { smallEngine } from "./harness.ts";

/** Words of `blocks` blocks that no other first word begins. */
const chainFrom = (first: number, blocks: number): Uint32Array =>
  Uint32Array.from({ length: 2 * blocks }, (_, at) => first * 0x1_0000 + at);

/** Changes as lists of low words. */
function runsOf({ runs, kinds, ends, words }: BlockChanges): [string, number[]][] {
  return Array.from({ length: runs }, (_, run) => {
    const kind = Object.entries(blockChange).find(([, value]) => value === kinds[run])![0];
    const blocks = words.subarray(2 * (ends[run - 1] ?? 0), 2 * ends[run]!);
    return [kind, Array.from(blocks).filter((_, at) => at % 2 === 0)];
  });
}

function createRecorder(changes = {}) {
  const reported: [string, number[]][][] = [];
  const cached: number[] = [];
  const engine = createBlockEngine({
    parameters: { ...smallEngine, ...changes },
    observer: {
      blocks: (batch) => void reported.push(runsOf(batch)),
      finished: (report) => void cached.push(report.cachedTokens),
    },
  });
  let nowMs = 0;
  let id = 0;
  return {
    engine,
    reported,
    cached,
    run(promptTokens: number, outputTokens: number, chain: Uint32Array): void {
      engine.submit({ id: id++, promptTokens, outputTokens, chain }, nowMs);
      nowMs += 1_000;
      engine.advanceTo(nowMs);
    },
  };
}

describe("what is told of blocks", () => {
  test("a block when it is full, another request's copy not at all", () => {
    const { run, reported, cached } = createRecorder();
    const chain = chainFrom(1, 3);
    run(8, 5, chain);
    const [first, second, third] = [chain[0]!, chain[2]!, chain[4]!];
    expect(reported).toEqual([[["stored", [first, second]]], [["stored", [third]]]]);
    // The last token of a prompt is always computed, so its block becomes a copy.
    run(8, 1, chain);
    expect(cached).toEqual([0, 4]);
    expect(reported.length).toBe(2);
  });

  test("what is evicted and what comes instead, in order and in one call per step", () => {
    const { run, reported } = createRecorder({ blockCount: 4 });
    const old = chainFrom(1, 4);
    const other = chainFrom(2, 3);
    run(15, 1, old);
    run(11, 1, other);
    expect(reported.at(-1)).toEqual([
      ["removed", [old[4], old[2]]],
      ["stored", [other[0], other[2]]],
    ]);
  });

  test("a reset", () => {
    const { run, reported, engine, cached } = createRecorder();
    const chain = chainFrom(1, 2);
    run(8, 1, chain);
    expect(engine.resetPrefixCache(5_000)).toBe(true);
    engine.submit({ id: 99, promptTokens: 8, outputTokens: 1, chain }, 5_000);
    engine.advanceTo(6_000);
    expect(reported.at(-1)).toEqual([
      ["cleared", []],
      ["stored", [chain[0], chain[2]]],
    ]);
    expect(cached).toEqual([0, 0]);
  });

  test("more runs than there is room for at first, in arrays of the receiver's own", () => {
    const batches: BlockChanges[] = [];
    const engine = createBlockEngine({
      parameters: { ...smallEngine, blockCount: 800, maxBatchedTokens: 4_096, maxModelLength: 4_096, maxRunning: 64 },
      observer: { blocks: (batch) => void batches.push(batch) },
    });
    // All in one step, and the pool has to give the second half up for the third.
    for (let id = 0; id < 64; id++)
      engine.submit({ id, promptTokens: 48, outputTokens: 1, chain: chainFrom(id, 12) }, 0);
    engine.advanceTo(1_000);
    for (let id = 64; id < 128; id++) {
      engine.submit({ id, promptTokens: 48, outputTokens: 1, chain: chainFrom(id, 12) }, 1_000);
    }
    engine.advanceTo(2_000);
    expect(batches.length).toBe(2);
    expect(batches[0]!.runs).toBe(1);
    expect(Array.from(batches[0]!.words.subarray(0, 24))).toEqual(Array.from(chainFrom(0, 12)));
    expect(batches[1]!.runs).toBeGreaterThan(16);
    const reported = batches.flatMap(runsOf);
    const present = new Set<number>();
    for (const [kind, blocks] of reported) {
      for (const block of blocks) {
        expect(present.has(block)).toBe(kind === "removed");
        if (kind === "stored") present.add(block);
        else present.delete(block);
      }
    }
    expect(present.size).toBe(engine.stats().cachedBlocks);
    expect(present.size).toBe(800);
  });

  test("hashes that differ in few bits only are as good as others", () => {
    const { run, cached } = createRecorder({ blockCount: 4_096, maxModelLength: 16_384, maxBatchedTokens: 16_384 });
    for (const shift of [0, 8, 20, 31]) {
      const chain = Uint32Array.from({ length: 4_000 }, (_, at) => (at % 2 === 0 ? (at / 2) << shift : at + shift));
      run(8_000, 1, chain);
      run(8_000, 1, chain);
    }
    expect(cached).toEqual([0, 7_996, 0, 7_996, 0, 7_996, 0, 7_996]);
  });
});

describe("a request of hashes", () => {
  const engine = createBlockEngine({ parameters: smallEngine, observer: {} });
  const request = { id: 1, promptTokens: 8, outputTokens: 4, chain: chainFrom(1, 3) };

  test.each([
    [{ chain: new Uint32Array(5) }, "a chain of 5 words, not 6"],
    [{ promptTokens: 0 }, "the prompt is empty"],
    [{ promptTokens: 7.5 }, "promptTokens 7.5 is not a whole number"],
    [{ promptTokens: -1 }, "promptTokens -1 is not a whole number"],
    [{ outputTokens: 0 }, "outputTokens 0 is not a whole number"],
    [{ promptTokens: 61, chain: chainFrom(1, 20) }, "65 tokens exceed maxModelLength 64"],
  ])("is refused: %j", (change, message) => {
    expect(() => engine.submit({ ...request, ...change }, 0)).toThrow(message);
    expect(engine.nextEventMs()).toBeUndefined();
  });

  test("an id may be in the engine once", () => {
    engine.submit(request, 0);
    expect(() => engine.submit(request, 0)).toThrow("request 1 is already in the engine");
    engine.advanceTo(100);
    engine.submit(request, 100);
    engine.advanceTo(200);
    expect(engine.stats().finished).toBe(2);
  });

  test("nobody listens, and all is counted", () => {
    expect(engine.stats()).toMatchObject({ generatedTokens: 8, promptTokens: 16, prefixHits: 4, cachedBlocks: 3 });
  });

  test("may have a longer chain than it needs, which is a view", () => {
    const long = chainFrom(5, 40);
    engine.submit({ ...request, chain: long.subarray(2) }, 300);
    engine.advanceTo(400);
    engine.submit({ ...request, chain: long.subarray(2, 8) }, 400);
    engine.advanceTo(500);
    expect(engine.stats().prefixHits).toBe(8);
  });

  test("an engine holds so many and not one more", () => {
    const full = createBlockEngine({ parameters: smallEngine, observer: {} });
    const chain = new Uint32Array(0);
    for (let id = 0; id < maxEngineRequests; id++) full.submit({ id, promptTokens: 1, outputTokens: 1, chain }, 0);
    const more = { id: maxEngineRequests, promptTokens: 1, outputTokens: 1, chain };
    expect(() => full.submit(more, 0)).toThrow(`the engine is at its limit of ${maxEngineRequests} requests`);
  });

  test.each([0, -1, 1.5, Number.NaN])("progress every %d tokens makes no sense", (progressTokens) => {
    expect(() => createBlockEngine({ parameters: smallEngine, observer: {}, progressTokens })).toThrow(RangeError);
  });
});
