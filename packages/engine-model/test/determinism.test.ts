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
});
