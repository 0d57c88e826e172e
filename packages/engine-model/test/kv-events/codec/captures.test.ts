import { captureFolders, livePayloads, replayedPayloads } from "@espalier/testing";
import { decode } from "@msgpack/msgpack";
import { describe, expect, test } from "vitest";
import {
  type EventDialect,
  encodeEventMessage,
  type WireEvent,
  type WireHash,
} from "../../../src/kv-events/codec/encode-events.ts";
import { createEventDecoder } from "../../../src/kv-events/codec/event-decoder.ts";
import { decodeNaively } from "./naive-decoder.ts";
import { plainEvents } from "./plain-events.ts";

const folders = captureFolders();
const dialects: Readonly<Record<string, EventDialect>> = {
  "vllm-0.23.0": "vllm-0.23",
  "vllm-0.32.0": "vllm-0.32",
  "sglang-0.5.23": "sglang-0.5.23",
};

describe.skipIf(folders.length === 0)("captured engines", () => {
  test.each(folders)("%s: every message decodes, as a naive decoder reads it", (folder) => {
    const live = livePayloads(folder);
    const replayed = replayedPayloads(folder);
    expect(live.length).toBeGreaterThan(100);
    expect(replayed.length).toBeGreaterThan(100);
    const decoder = createEventDecoder();
    for (const payload of [...live, ...replayed]) {
      const expected = decodeNaively(payload);
      expect(decoder.decode(payload)).toEqual({
        refused: undefined,
        events: expected.events.length,
        unknownEvents: 0,
        malformedEvents: 0,
        unknownMedia: 0,
      });
      expect(plainEvents(decoder.batch)).toEqual(expected.events);
      expect([decoder.batch.timestampS, decoder.batch.rank]).toEqual([expected.timestampS, expected.rank]);
    }
  });

  test.each(folders)("%s: what is rare is found", (folder) => {
    const decoder = createEventDecoder();
    const salts = new Set<string | undefined>();
    const adapters = new Set<string | undefined>();
    let partial = 0;
    let ragged = 0;
    for (const payload of livePayloads(folder)) {
      decoder.decode(payload);
      for (const event of plainEvents(decoder.batch)) {
        expect(event.detail?.blockKeys).toBeUndefined();
        salts.add(event.detail?.cacheSalt);
        adapters.add(event.detail?.adapter);
        if (event.attention !== "full") partial += 1;
        if (event.kind === "stored" && event.tokens.length !== event.hashes.length * event.blockSize) ragged += 1;
      }
    }
    expect([...salts].sort()).toEqual(["tenant-a", "tenant-b", undefined]);
    const isVllm = folder.startsWith("vllm");
    expect([...adapters].sort()).toEqual(isVllm ? ["adapter-a", undefined] : [undefined]);
    expect(partial > 0).toBe(isVllm);
    // The sliding-window group of the hybrid model, in the newer vLLM, has fewer hashes than its tokens would fill.
    expect(ragged > 0).toBe(folder === "vllm-0.32.0");
  });

  test.each(folders)("%s: encoding what was decoded gives the engine's own bytes", (folder) => {
    const dialect = dialects[folder]!;
    let equal = 0;
    for (const payload of livePayloads(folder)) {
      const [timestampS, events, rank] = decode(payload, { useBigInt64: true }) as [number, unknown[], number];
      const again = encodeEventMessage(events.map(wireEvent), dialect, { timestampS, rank });
      expect(Buffer.from(again).toString("hex")).toBe(Buffer.from(payload).toString("hex"));
      equal += 1;
    }
    expect(equal).toBeGreaterThan(100);
  });
});

const names = [
  "type",
  "block_hashes",
  "parent_block_hash",
  "token_ids",
  "block_size",
  "lora_id",
  "medium",
  "lora_name",
  "extra_keys",
  "group_idx",
  "kv_cache_spec_kind",
  "kv_cache_spec_sliding_window",
];

interface Captured {
  readonly type: string;
  readonly block_hashes: WireHash[];
  readonly parent_block_hash: WireHash | null;
  readonly token_ids: number[];
  readonly block_size: number;
  readonly lora_id: number | null;
  readonly lora_name?: string | null;
  readonly extra_keys?: (string[] | null)[];
  readonly group_idx?: number;
  readonly kv_cache_spec_kind?: string;
  readonly kv_cache_spec_sliding_window?: number | null;
  readonly session_id?: string;
  readonly cache_salt?: string;
}

/** What the encoder would have been given to send this. */
function wireEvent(event: unknown): WireEvent {
  const removedNames = ["type", "block_hashes", "medium", "group_idx"];
  const order = Array.isArray(event) && event[0] === "BlockRemoved" ? removedNames : names;
  const fields = (
    Array.isArray(event) ? Object.fromEntries(event.map((value, at) => [order[at], value])) : event
  ) as Captured;
  if (fields.type === "AllBlocksCleared") return { type: "cleared" };
  const hashes = fields.block_hashes;
  const group = fields.group_idx ?? 0;
  if (fields.type === "BlockRemoved") return { type: "removed", hashes, group };
  const firstKeys = fields.extra_keys?.[0]?.filter((key) => key !== fields.lora_name);
  const parentHash = fields.parent_block_hash ?? undefined;
  return {
    type: "stored",
    hashes,
    parentHash,
    tokens: Uint32Array.from(fields.token_ids),
    blockSize: fields.block_size,
    adapter: fields.lora_name ?? undefined,
    cacheSalt: fields.cache_salt ?? firstKeys?.[0],
    group,
    ...(fields.lora_id === null ? {} : { adapterNumber: fields.lora_id }),
    ...(fields.kv_cache_spec_kind === undefined ? {} : { specKind: fields.kv_cache_spec_kind }),
    ...(typeof fields.kv_cache_spec_sliding_window === "number"
      ? { slidingWindow: fields.kv_cache_spec_sliding_window }
      : {}),
    ...(fields.session_id === undefined ? {} : { sessionId: fields.session_id }),
  };
}
