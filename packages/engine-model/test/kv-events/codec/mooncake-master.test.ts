/**
 * Messages of Mooncake's master, laid out as its `kv_event_publisher.cpp` of August 2026 packs them; not captured. It tells
 * keys of its store, not tokens: blocks that only their name is known of.
 */
import { encode } from "@msgpack/msgpack";
import { describe, expect, test } from "vitest";
import { createEventDecoder } from "../../../src/kv-events/codec/event-decoder.ts";
import { plainEvents } from "./plain-events.ts";

const timestampMs = 1_795_226_916_250;

/** Fields that the master leaves empty: it knows nothing of models, sizes and ranks. */
const unknown = { model_name: null, block_size: null, additional_salt: null, lora_name: null, dp_rank: null };

function masterEvent(kind: "stored" | "removed", key: string, medium: string | null, withHash: boolean): object {
  const hash = withHash ? [BigInt.asIntN(64, BigInt(key))] : [];
  return {
    ...{ event_id: 7, timestamp: timestampMs, event_type: kind },
    type: kind === "stored" ? "BlockStored" : "BlockRemoved",
    ...unknown,
    ...{ tenant_id: "default", backend_id: "pool-0", group_id: null, medium, object_key: key },
    seq_hashes: withHash ? [BigInt(key)] : [],
    block_hashes: hash,
    ...(kind === "stored"
      ? { base_block_idx: 0, parent_hash: null, token_ids: null, parent_block_hash: null }
      : { base_block_idx: null }),
  };
}

function decode(...events: readonly object[]) {
  const decoder = createEventDecoder();
  const report = decoder.decode(encode([timestampMs, events, 0], { useBigInt64: true }));
  return { report: { ...report }, events: plainEvents(decoder.batch), timestampS: decoder.batch.timestampS };
}

describe("what is read of it", () => {
  test("a block whose key is a number has its hash, and neither tokens nor a parent", () => {
    const key = String(2n ** 63n + 5n);
    const { report, events } = decode(
      masterEvent("stored", key, "DISK", true),
      masterEvent("removed", key, "DISK", true),
    );
    expect(report).toMatchObject({ refused: undefined, events: 2, malformedEvents: 0, unknownMedia: 0 });
    expect(events).toMatchObject([
      { kind: "stored", hashes: [2n ** 63n + 5n], tokens: [], parent: undefined, tier: "disk" },
      { kind: "removed", hashes: [2n ** 63n + 5n], tier: "disk" },
    ]);
  });

  test("a key that is no number gives a block without a name", () => {
    const { events } = decode(masterEvent("stored", "llama@0@0@9f86d0", null, false));
    expect(events).toMatchObject([{ kind: "stored", hashes: [], tokens: [] }]);
  });

  test("its names of memory are small letters, which no engine that was captured writes: they count as outside", () => {
    const { report, events } = decode(
      masterEvent("stored", "5", "cpu", true),
      masterEvent("stored", "6", "disk", true),
    );
    expect(report.unknownMedia).toBe(2);
    expect(events.map(({ tier }) => tier)).toEqual(["external", "external"]);
  });
});

test.each([
  { written: 1_795_226_916.25, seconds: 1_795_226_916.25 },
  { written: timestampMs, seconds: 1_795_226_916.25 },
  { written: 99_999_999_999, seconds: 99_999_999_999 },
  { written: 100_000_000_001, seconds: 100_000_000.001 },
  { written: -5, seconds: -5 },
])("the time $written is $seconds s: milliseconds where seconds would be of another age", ({ written, seconds }) => {
  const decoder = createEventDecoder();
  expect(decoder.decode(encode([written, [], 0])).refused).toBeUndefined();
  expect(decoder.batch.timestampS).toBe(seconds);
});
