import type { KvEvent } from "@espalier/engine-model";
import { describe, expect, test } from "vitest";
import { createHarness, upFrom } from "./harness.ts";

describe("determinism", () => {
  function history(hashSeed: number): { events: KvEvent[]; rest: unknown } {
    const harness = createHarness({ blockCount: 12, maxBatchedTokens: 8 }, hashSeed);
    for (let at = 0; at < 12; at++) harness.submit(`r${at}`, upFrom(at % 3, 6 + (at % 5)), 1 + (at % 4));
    harness.settle();
    return { events: harness.events(), rest: [harness.reports, harness.tokens, harness.engine.stats()] };
  }
  const hashesOf = (events: readonly KvEvent[]): bigint[] =>
    events.flatMap((event) => (event.type === "cleared" ? [] : event.hashes));

  test("two runs are identical", () => {
    expect(history(7)).toEqual(history(7));
  });

  test("another seed gives other hashes and nothing else", () => {
    const one = history(7);
    const other = history(8);
    expect(other.rest).toEqual(one.rest);
    expect(other.events.map(({ type }) => type)).toEqual(one.events.map(({ type }) => type));
    const seen = new Set(hashesOf(one.events));
    expect(hashesOf(other.events).filter((hash) => seen.has(hash))).toEqual([]);
  });

  test("hashes use all of 64 bits and differ wherever content or place differ", () => {
    const harness = createHarness({ blockCount: 4_096, maxModelLength: 16_384, maxBatchedTokens: 16_384 });
    // Many chains of equal blocks: only their place tells them apart.
    for (let at = 0; at < 8; at++) harness.run(`r${at}`, [at, ...new Array<number>(2_000).fill(5)]);
    const hashes = hashesOf(harness.events());
    expect(new Set(hashes).size).toBe(hashes.length);
    const used = hashes.reduce((bits, hash) => bits | hash, 0n);
    expect(used).toBe(0xffff_ffff_ffff_ffffn);
  });

  test("what is asked in between changes nothing", () => {
    const quiet = createHarness();
    const busy = createHarness();
    for (const harness of [quiet, busy]) {
      for (const id of ["a", "b"]) {
        harness.submit(id, upFrom(1, 10), 4);
        if (harness === busy) {
          harness.engine.nextEventMs();
          harness.engine.stats();
        }
      }
    }
    quiet.engine.advanceTo(100);
    for (let at = 0; at <= 100; at += 0.25) busy.engine.advanceTo(at);
    expect(busy.reports).toEqual(quiet.reports);
    expect(busy.batches).toEqual(quiet.batches);
  });
});
