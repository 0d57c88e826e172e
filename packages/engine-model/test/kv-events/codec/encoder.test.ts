import { createSeededRandom, type Random } from "@espalier/core";
import { decode } from "@msgpack/msgpack";
import { describe, expect, test } from "vitest";
import {
  type EventDialect,
  encodeEventMessage,
  eventDialects,
  type WireEvent,
} from "../../../src/kv-events/codec/encode-events.ts";
import { createEventDecoder } from "../../../src/kv-events/codec/event-decoder.ts";
import { type PlainEvent, plainEvent, plainEvents } from "./plain-events.ts";

const removesOneByOne = (dialect: EventDialect): boolean => dialect.startsWith("vllm");
const namesGroups = removesOneByOne;

function randomHash(random: Random): bigint {
  const value = (BigInt(random.integer(2 ** 32)) << 32n) | BigInt(random.integer(2 ** 32));
  return value >> BigInt(random.integer(5) === 0 ? random.integer(64) : 0);
}

function randomEvents(random: Random): WireEvent[] {
  const hashes = (): bigint[] => Array.from({ length: 1 + random.integer(5) }, () => randomHash(random));
  return Array.from({ length: random.integer(6) }, (): WireEvent => {
    const kind = random.integer(8);
    if (kind === 0) return { type: "cleared" };
    if (kind < 4) return { type: "removed", hashes: hashes() };
    const stored = hashes();
    return {
      type: "stored",
      hashes: stored,
      parentHash: random.integer(2) === 0 ? undefined : randomHash(random),
      tokens: Uint32Array.from({ length: 4 * stored.length }, () => random.integer(2 ** (1 + random.integer(32)))),
      blockSize: 4,
      adapter: undefined,
      cacheSalt: undefined,
    };
  });
}

/** What a reader makes of it. */
function expectedEvents(event: WireEvent, dialect: EventDialect): PlainEvent[] {
  if (event.type === "cleared") return [plainEvent({ kind: "cleared" })];
  const group = namesGroups(dialect) ? 0 : -1;
  const hashes = event.hashes as readonly bigint[];
  if (event.type === "removed") {
    const runs = removesOneByOne(dialect) ? hashes.map((hash) => [hash]) : [hashes];
    return runs.map((run) => plainEvent({ kind: "removed", hashes: run, group }));
  }
  const { parentHash, tokens, blockSize } = event;
  return [plainEvent({ hashes, parent: parentHash as bigint | undefined, tokens: [...tokens], blockSize, group })];
}

describe.each(eventDialects)("%s", (dialect) => {
  test.each([
    { hashes: "integer", envelope: "array" },
    { hashes: "bytes", envelope: "array" },
    { hashes: "integer", envelope: "map" },
  ] as const)("what is encoded is what is decoded: $hashes hashes, $envelope envelope", (form) => {
    const random = createSeededRandom(41);
    const decoder = createEventDecoder();
    for (let message = 0; message < 500; message++) {
      const events = randomEvents(random);
      const rank = random.integer(2) === 0 ? undefined : random.integer(9);
      const payload = encodeEventMessage(events, dialect, { timestampS: message, rank, ...form });
      expect(decoder.decode(payload)).toMatchObject({ refused: undefined, unknownEvents: 0, malformedEvents: 0 });
      expect(decoder.batch).toMatchObject({ timestampS: message, rank: rank ?? -1 });
      expect(plainEvents(decoder.batch)).toEqual(events.flatMap((event) => expectedEvents(event, dialect)));
    }
  });

  test("adapter and salt arrive as far as the dialect has them", () => {
    const decoder = createEventDecoder();
    const stored = {
      type: "stored",
      tokens: Uint32Array.of(1, 2),
      blockSize: 1,
      cacheSalt: "t",
      adapter: "ada",
    } as const;
    const payload = encodeEventMessage(
      [
        { ...stored, hashes: [5n, 6n], parentHash: undefined, adapterNumber: 4 },
        { ...stored, hashes: [7n, 8n], parentHash: 6n, adapterNumber: 4 },
      ],
      dialect,
      { timestampS: 1.5, rank: 0 },
    );
    decoder.decode(payload);
    const [root, child] = plainEvents(decoder.batch).map(({ detail }) => detail);
    const named = removesOneByOne(dialect);
    const adapter = named ? "ada" : "lora-4";
    const isSalted = named || dialect === "sglang-0.5.23";
    expect(root).toEqual({ adapter, cacheSalt: isSalted ? "t" : undefined, blockKeys: undefined });
    expect(child).toEqual({ adapter, cacheSalt: isSalted && !named ? "t" : undefined, blockKeys: undefined });
  });

  test("an adapter without a number gets the same one every time, and another adapter another", () => {
    const numbers = ["ada", "ada", "grace"].map((adapter) => {
      const stored = { type: "stored", hashes: [1n], parentHash: undefined, tokens: new Uint32Array(1) } as const;
      const event = { ...stored, blockSize: 1, adapter, cacheSalt: undefined };
      const [, [fields]] = decode(encodeEventMessage([event], dialect, { timestampS: 1, rank: 0 })) as [
        number,
        unknown[],
      ];
      return Array.isArray(fields) ? fields[5] : (fields as { lora_id: number }).lora_id;
    });
    expect(numbers[0]).toBe(numbers[1]);
    expect(numbers[0]).not.toBe(numbers[2]);
    expect(numbers.every((number) => Number.isInteger(number) && number > 0)).toBe(true);
  });

  test("other media, groups, kinds and inputs arrive", () => {
    const decoder = createEventDecoder();
    const group = namesGroups(dialect) ? 3 : -1;
    decoder.decode(
      encodeEventMessage(
        [
          {
            type: "stored",
            hashes: [1n, 2n],
            parentHash: 5n,
            tokens: Uint32Array.of(1, 2),
            blockSize: 1,
            adapter: undefined,
            cacheSalt: undefined,
            inputs: [undefined, [["img", 3]]],
            medium: "CPU",
            group: 3,
            specKind: "sliding_window",
            slidingWindow: 64,
          },
          { type: "removed", hashes: [1n], medium: "DISK", group: 3 },
        ],
        dialect,
        { timestampS: 1.5, rank: 0 },
      ),
    );
    const [stored, removed] = plainEvents(decoder.batch);
    const vllm = removesOneByOne(dialect);
    expect(stored).toMatchObject({ tier: "cpu", group, attention: vllm ? "window" : "full", window: vllm ? 64 : 0 });
    expect(stored!.detail?.blockKeys).toEqual(vllm ? [undefined, "5:img@3"] : undefined);
    expect(removed).toMatchObject({ tier: "disk", group });
  });
});

test("signed and unsigned hashes are spelled as the engines do", () => {
  const removed: WireEvent = { type: "removed", hashes: [2n ** 64n - 5n] };
  const options = { timestampS: 1.5, rank: 0 };
  const hashOf = (dialect: EventDialect): unknown => {
    const [, [event]] = decode(encodeEventMessage([removed], dialect, options), { useBigInt64: true }) as [
      number,
      unknown[],
    ];
    return Object.values(event as object)[1][0];
  };
  expect(hashOf("vllm-0.23")).toBe(2n ** 64n - 5n);
  expect(hashOf("vllm-0.32")).toBe(2n ** 64n - 5n);
  expect(hashOf("trtllm")).toBe(2n ** 64n - 5n);
  expect(hashOf("sglang-0.5.23")).toBe(-5);
  expect(hashOf("sglang-array")).toBe(-5);
});
