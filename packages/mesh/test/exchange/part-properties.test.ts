import { createSeededRandom } from "@espalier/core";
import { fixedSeeds } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import {
  type BulkMessage,
  type BulkOutcome,
  decodeBulkMessage,
  encodeBulkMessage,
} from "../../src/exchange/bulk-transfer.ts";
import { DocumentNumbers } from "../../src/exchange/document-broadcaster.ts";
import { type HeldUpdate, HeldUpdates } from "../../src/exchange/document-exchange.ts";

const seeds = fixedSeeds(30);
/** What holding an update costs besides its bytes. */
const overheadBytes = 64;

const costOf = (updates: readonly HeldUpdate[]): number =>
  updates.reduce((sum, { bytes }) => sum + bytes.length + overheadBytes, 0);

describe("held updates", () => {
  test.each(seeds)("are what a plain list with the same bounds would hold (seed %d)", (seed) => {
    const random = createSeededRandom(seed);
    const limits = { maxHeldBytesPerDocument: 200 + random.integer(800), maxHeldBytes: 600 + random.integer(2_000) };
    const held = new HeldUpdates(limits);
    const naive = new Map<string, HeldUpdate[]>();
    const total = (): number => [...naive.values()].reduce((sum, list) => sum + costOf(list), 0);
    for (let step = 0; step < 400; step++) {
      const name = `d${random.integer(6)}`;
      const list = naive.get(name) ?? [];
      if (random.integer(5) === 0) {
        expect(held.take(name)).toEqual(list.toSorted((a, b) => a.from - b.from));
        naive.delete(name);
      } else {
        const from = random.integer(1_000);
        const update = { name, from, to: from + 1, bytes: new Uint8Array(random.integer(300)), committedWallMs: step };
        held.hold(update);
        naive.set(name, list);
        list.push(update);
        while (list.length > 0 && (costOf(list) > limits.maxHeldBytesPerDocument || total() > limits.maxHeldBytes)) {
          list.shift();
        }
      }
      expect(held.byteLength).toBe(total());
      expect(held.byteLength).toBeLessThanOrEqual(limits.maxHeldBytes);
    }
  });

  test("of the bound of a document are kept, and one byte more drops the oldest of this document only", () => {
    const held = new HeldUpdates({ maxHeldBytesPerDocument: 2 * (overheadBytes + 10), maxHeldBytes: 10_000 });
    const update = (name: string, from: number, length: number): HeldUpdate => {
      return { name, from, to: from + 1, bytes: new Uint8Array(length), committedWallMs: 0 };
    };
    held.hold(update("other", 0, 10));
    held.hold(update("d", 1, 10));
    held.hold(update("d", 2, 10));
    held.hold(update("e", 1, 10));
    held.hold(update("e", 2, 11));
    expect(held.take("d").map(({ from }) => from)).toEqual([1, 2]);
    expect(held.take("e").map(({ from }) => from)).toEqual([2]);
    expect(held.take("other")).toHaveLength(1);
    expect(held.byteLength).toBe(0);
  });

  test("that alone are past the bound are not kept at all", () => {
    const held = new HeldUpdates({ maxHeldBytesPerDocument: 100, maxHeldBytes: 1_000 });
    held.hold({ name: "d", from: 0, to: 1, bytes: new Uint8Array(37), committedWallMs: 0 });
    expect([held.byteLength, held.take("d")]).toEqual([0, []]);
  });
});

describe("numbers of documents", () => {
  test.each(seeds)(
    "stand for one name each, within the bound, and are free again with their document (seed %d)",
    (seed) => {
      const random = createSeededRandom(seed);
      const capacity = 1 + random.integer(12);
      const numbers = new DocumentNumbers(capacity);
      const known = new Map<string, number>();
      for (let step = 0; step < 300; step++) {
        if (random.integer(12) === 0) {
          const gone = new Set([...known.keys()].filter(() => random.integer(2) === 0));
          const freed = numbers.retain((name) => !gone.has(name));
          expect(freed.toSorted()).toEqual([...gone].map((name) => known.get(name)!).toSorted());
          for (const name of gone) known.delete(name);
          continue;
        }
        const name = `d${random.integer(20)}`;
        const number = numbers.numberOf(name);
        if (known.has(name)) expect(number).toBe(known.get(name));
        else if (known.size >= capacity) expect(number).toBeUndefined();
        else {
          expect(number).toBeLessThan(capacity);
          expect([...known.values()]).not.toContain(number);
          known.set(name, number!);
        }
      }
    },
  );
});

describe("bulk frames", () => {
  const outcomes: readonly BulkOutcome[] = ["whole", "none", "busy", "failed"];
  const messages: readonly BulkMessage[] = [
    ...outcomes.map((outcome) => ({ kind: "end", request: Number.MAX_SAFE_INTEGER, outcome }) as const),
    { kind: "part", request: 0, goesOn: false, bytes: new Uint8Array(0) },
    { kind: "part", request: 128, goesOn: true, bytes: Uint8Array.of(0, 255) },
    { kind: "credit", bytes: 0 },
    { kind: "credit", bytes: Number.MAX_SAFE_INTEGER },
  ];

  test.each(messages)("come out as they went in: %j", (message) => {
    expect(decodeBulkMessage(encodeBulkMessage(message))).toEqual(message);
  });

  test.each<[string, number[]]>([
    ["nothing", []],
    ["an unknown type", [0]],
    ["an unknown type", [4, 0]],
    ["a part without flags", [1, 0]],
    ["a part with unknown flags", [1, 0, 2]],
    ["an end of no outcome", [2, 0]],
    ["an end of an unknown outcome", [2, 0, 4]],
    ["an end with more behind it", [2, 0, 0, 0]],
    ["a credit with more behind it", [3, 1, 1]],
    ["a credit beyond safe integers", [3, 255, 255, 255, 255, 255, 255, 255, 255, 1]],
  ])("are refused: %s", (_, bytes) => {
    expect(() => decodeBulkMessage(Uint8Array.from(bytes))).toThrow(RangeError);
  });

  test("of arbitrary bytes are one message only, or a RangeError", () => {
    const random = createSeededRandom(3);
    let read = 0;
    for (let round = 0; round < 5_000; round++) {
      const bytes = Uint8Array.from({ length: random.integer(8) }, (_, at) =>
        random.integer(at === 0 ? 5 : random.integer(2) ? 3 : 256),
      );
      let message: BulkMessage | undefined;
      try {
        message = decodeBulkMessage(bytes);
      } catch (error) {
        expect(error).toBeInstanceOf(RangeError);
      }
      if (!message) continue;
      read++;
      expect(decodeBulkMessage(encodeBulkMessage(message))).toEqual(message);
    }
    expect(read).toBeGreaterThan(300);
  });
});
