import { createSeededRandom, type Random } from "@espalier/core";
import { type FactKind, factKinds, resumePoint, type Tier, tier } from "@espalier/prefix-index";
import { describe, expect, test } from "vitest";
import { applyFactOps, countFactOps, type FactOpsSink, FactOpsWriter } from "../../src/facts/fact-ops.ts";

/** What a sink was told, block by block. */
class TellingSink implements FactOpsSink {
  readonly reported: string[] = [];
  calls = 0;

  stored(tier: FactKind, words: Uint32Array, from: number, to: number): void {
    this.#blocks("stored", tier, words, from, to);
  }

  removed(tier: FactKind, words: Uint32Array, from: number, to: number): void {
    this.#blocks("removed", tier, words, from, to);
  }

  removedLow(tier: FactKind, lows: Uint32Array, from: number, to: number): void {
    this.calls += 1;
    for (let at = from; at < to; at++) this.reported.push(`removedLow ${tier} ${lows[at]}`);
  }

  orphaned(tier: Tier, words: Uint32Array, at: number, depthBlocks: number): void {
    this.calls += 1;
    this.reported.push(`orphaned ${tier} ${words[2 * at]}:${words[2 * at + 1]} ${depthBlocks}`);
  }

  holeGone(tier: Tier, words: Uint32Array, at: number): void {
    this.#blocks("holeGone", tier, words, at, at + 1);
  }

  cleared(): void {
    this.calls += 1;
    this.reported.push("cleared");
  }

  #blocks(what: string, tier: FactKind, words: Uint32Array, from: number, to: number): void {
    this.calls += 1;
    for (let at = from; at < to; at++) this.reported.push(`${what} ${tier} ${words[2 * at]}:${words[2 * at + 1]}`);
  }
}

const never = () => new FactOpsWriter({ isUnambiguous: () => false });
const always = () => new FactOpsWriter({ isUnambiguous: () => true });

function tell(ops: Uint8Array): TellingSink {
  const sink = new TellingSink();
  expect(applyFactOps(ops, sink)).toBe(sink.reported.length);
  return sink;
}

function randomWords(random: Random, blocks: number): Uint32Array {
  return Uint32Array.from({ length: 2 * blocks }, () => random.integer(2 ** 32));
}

/** Tells two sinks the same at random. @returns nothing once both know it */
function tellRandomly(random: Random, sinks: readonly (FactOpsWriter | TellingSink)[]): void {
  const blocks = 1 + random.integer(random.integer(8) === 0 ? 3_000 : 6);
  const words = randomWords(random, blocks + 2);
  const inTier = random.integer(4) as Tier;
  const kind = factKinds[random.integer(factKinds.length)]!;
  const choice = random.integer(16);
  for (const sink of sinks) {
    if (choice < 7) sink.stored(kind, words, 1, blocks + 1);
    else if (choice < 12) sink.removed(kind, words, 1, blocks + 1);
    else if (choice < 14) sink.orphaned(inTier, words, 1, words[0]!);
    else sink.holeGone(inTier, words, 1);
  }
}

describe("round trips", () => {
  test.each([1, 2, 3, 4, 5, 6, 7, 8])("what was told is told again, seed %i", (seed) => {
    const random = createSeededRandom(seed);
    const writer = never();
    for (let record = 0; record < 5; record++) {
      const direct = new TellingSink();
      writer.begin();
      for (let step = random.integer(30); step >= 0; step--) tellRandomly(random, [writer, direct]);
      expect(tell(writer.finish()).reported).toEqual(direct.reported);
    }
  });

  test("nothing told gives no bytes", () => {
    const writer = never();
    writer.begin();
    expect(writer.finish()).toEqual(new Uint8Array());
    expect(tell(new Uint8Array()).reported).toEqual([]);
  });

  test("begin drops what was not finished", () => {
    const writer = never();
    writer.stored(tier.gpu, Uint32Array.of(1, 2), 0, 1);
    writer.begin();
    expect(writer.finish()).toHaveLength(0);
  });

  test("stores that follow each other are one run of eight bytes a block", () => {
    const writer = never();
    for (let block = 0; block < 100; block++) writer.stored(tier.gpu, Uint32Array.of(block, 7), 0, 1);
    const ops = writer.finish();
    expect(ops.length).toBe(2 + 800);
    expect(tell(ops).calls).toBe(1);
  });

  test("runs longer than a writer or a sink takes at once are cut", () => {
    const words = randomWords(createSeededRandom(3), 5_000);
    const writer = always();
    writer.stored(tier.disk, words, 0, 5_000);
    const sink = tell(writer.finish());
    expect(sink.reported).toHaveLength(5_000);
    expect(sink.reported[4_999]).toBe(`stored 2 ${words[9_998]}:${words[9_999]}`);
    expect(sink.calls).toBeGreaterThan(1);
    // A run of 3,000 blocks, which other writers might write.
    const long = new Uint8Array([...varint(2_999 * 32 + tier.cpu * 8 + 1), ...new Uint8Array(words.buffer, 0, 24_000)]);
    expect(tell(long).reported[2_999]).toBe(`removed 1 ${words[5_998]}:${words[5_999]}`);
  });

  test("resume points take a byte of their own and eight a block, and four where the low word is enough", () => {
    const writer = always();
    writer.stored(resumePoint, Uint32Array.of(1, 9, 2, 9), 0, 2);
    writer.stored(tier.gpu, Uint32Array.of(1, 9), 0, 1);
    writer.removed(resumePoint, Uint32Array.of(1, 9, 3, 9), 0, 2);
    const ops = writer.finish();
    expect(tell(ops).reported).toEqual([
      ...["stored 4 1:9", "stored 4 2:9", "stored 0 1:9", "removed 4 1:9", "removedLow 4 3"],
    ]);
    expect(ops.length).toBe(1 + 16 + 1 + 8 + 1 + 8 + 1 + 4);
  });

  test("a clearing makes what was told before it superfluous", () => {
    const writer = always();
    writer.stored(tier.gpu, randomWords(createSeededRandom(1), 50), 0, 50);
    writer.cleared();
    writer.stored(tier.cpu, Uint32Array.of(5, 6), 0, 1);
    const ops = writer.finish();
    expect(tell(ops).reported).toEqual(["cleared", "stored 1 5:6"]);
    expect(ops.length).toBe(1 + 1 + 8);
  });
});

describe("removals by their low words", () => {
  test("take four bytes where the low word says which block it is", () => {
    const writer = new FactOpsWriter({ isUnambiguous: (_tier, low, high) => low !== 3 && high === 9 });
    writer.removed(tier.gpu, Uint32Array.of(1, 9, 2, 9, 3, 9, 4, 9, 5, 8), 0, 5);
    expect(tell(writer.finish()).reported).toEqual([
      "removedLow 0 1",
      "removedLow 0 2",
      "removed 0 3:9",
      "removedLow 0 4",
      "removed 0 5:8",
    ]);
  });

  test("are refused for a low word that the same record has stored, in that tier, whoever says otherwise", () => {
    const writer = always();
    writer.stored(tier.gpu, Uint32Array.of(1, 9), 0, 1);
    writer.removed(tier.gpu, Uint32Array.of(1, 9, 1, 8, 2, 9), 0, 3);
    writer.removed(tier.cpu, Uint32Array.of(1, 9), 0, 1);
    expect(tell(writer.finish()).reported).toEqual([
      "stored 0 1:9",
      "removed 0 1:9",
      "removed 0 1:8",
      "removedLow 0 2",
      "removedLow 1 1",
    ]);
    writer.removed(tier.gpu, Uint32Array.of(1, 9), 0, 1);
    expect(tell(writer.finish()).reported).toEqual(["removedLow 0 1"]);
  });

  test("the question names tier, low and high word", () => {
    const asked: number[][] = [];
    const writer = new FactOpsWriter({ isUnambiguous: (...words) => asked.push(words) < 0 });
    writer.removed(tier.external, Uint32Array.of(0, 0, 0xffff_ffff, 4), 1, 2);
    expect(asked).toEqual([[3, 0xffff_ffff, 4]]);
  });
});

describe("bytes that are no ops", () => {
  const rejected = (bytes: readonly number[]): void => {
    const sink = new TellingSink();
    expect(() => countFactOps(Uint8Array.from(bytes))).toThrow(RangeError);
    expect(() => applyFactOps(Uint8Array.from(bytes), sink)).toThrow(RangeError);
    expect(sink.calls).toBe(0);
  };
  const goodRun = [0, 1, 2, 3, 4, 5, 6, 7, 8];

  test.each([
    ["a run that ends early", [...goodRun, 0, 1, 2, 3]],
    ["an unknown kind", [...goodRun, 6]],
    ["another unknown kind", [...goodRun, 7]],
    ["a hole in resume points", [...goodRun, 6 + 8 * 3, ...new Array<number>(9).fill(0)]],
    ["a clearing of a tier", [...goodRun, 5 + 8]],
    ["two clearings in one run", [...goodRun, 5 + 32]],
    ["two holes in one run", [3 + 32, ...new Array<number>(18).fill(0)]],
    ["a hole without a depth", [3, 1, 2, 3, 4, 5, 6, 7, 8]],
    ["a hole that is too deep", [3, 1, 2, 3, 4, 5, 6, 7, 8, ...varint(2 ** 32)]],
    ["a run of more blocks than there is memory", varint(2 ** 52)],
    ["a header that does not end", [255, 255, 255, 255, 255, 255, 255, 255, 255, 255]],
  ])("%s: the sink is told of nothing", (_what, bytes) => rejected(bytes));

  test("whatever the bytes are, they are told as a whole or not at all", () => {
    const random = createSeededRandom(11);
    let good = 0;
    for (let round = 0; round < 3_000; round++) {
      const writer = always();
      for (let step = random.integer(4); step >= 0; step--) tellRandomly(random, [writer]);
      const ops = writer.finish().slice(0, 400);
      for (let change = random.integer(4); change > 0; change--) ops[random.integer(ops.length)] = random.integer(256);
      const sink = new TellingSink();
      try {
        const count = applyFactOps(ops, sink);
        expect(sink.reported.length).toBe(count);
        good += 1;
      } catch (error) {
        expect(error).toBeInstanceOf(RangeError);
        expect(sink.calls).toBe(0);
      }
    }
    expect(good).toBeGreaterThan(100);
  });
});

function varint(value: number): number[] {
  return value < 128 ? [value] : [(value % 128) + 128, ...varint(Math.floor(value / 128))];
}
