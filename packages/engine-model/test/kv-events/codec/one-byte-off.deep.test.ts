import { isDeepStrictEqual } from "node:util";
import { decode } from "@msgpack/msgpack";
import { describe, expect, test } from "vitest";
import { type EventDialect, encodeEventMessage, type WireEvent } from "../../../src/kv-events/codec/encode-events.ts";
import { createEventDecoder } from "../../../src/kv-events/codec/event-decoder.ts";
import { decodeNaively } from "./naive-decoder.ts";
import { plainEvents } from "./plain-events.ts";

const stored = { type: "stored", adapter: undefined, cacheSalt: undefined, blockSize: 2 } as const;
const events: readonly WireEvent[] = [
  { type: "removed", hashes: [2n ** 63n + 5n] },
  { type: "removed", hashes: [2n ** 63n + 6n] },
  { ...stored, hashes: [2n ** 63n + 7n, 300n], parentHash: undefined, tokens: Uint32Array.of(5, 300, 70_000, 9) },
  { ...stored, hashes: [9n], parentHash: 2n ** 63n + 7n, tokens: Uint32Array.of(1, 2), medium: "CPU" },
  { type: "cleared" },
  { type: "removed", hashes: [2n ** 63n + 8n] },
];

/** The library does not tell a float from the integer that it equals. */
const float32Head = 0xca;
const float64Head = 0xcb;

/** Every head that has its own meaning, at every place; of the other bytes one in 17, others at each place. */
const isTried = (at: number, byte: number): boolean =>
  byte !== float32Head && byte !== float64Head && ((byte >= 0xc0 && byte < 0xe0) || byte % 17 === at % 17);

const isInteger = (value: unknown): boolean => typeof value === "bigint" || Number.isInteger(value);
const isAbsent = (value: unknown): boolean => value === null || value === undefined;

/** Whether the naive decoder, which does not look at the types of everything, has a say about this event. */
function isJudged(event: unknown): boolean {
  if (!Array.isArray(event)) return typeof event !== "object" || event === null;
  if (event[0] !== "BlockStored") return true;
  const [number, , name, keys] = event.slice(5);
  const hasPlainKeys = isAbsent(keys) || (Array.isArray(keys) && keys.every(isAbsent));
  return (isAbsent(number) || isInteger(number)) && isAbsent(name) && hasPlainKeys;
}

/** What becomes of the bytes as a library reads them; undefined where it has no say. */
function expectedOf(payload: Uint8Array): ReturnType<typeof decodeNaively> | "refused" | undefined {
  let value: unknown;
  try {
    // Without a bound the library makes room for as many elements as are announced.
    value = decode(payload, { useBigInt64: true, maxArrayLength: payload.length, maxMapLength: payload.length });
  } catch (error) {
    if (error instanceof Error && error.message.startsWith("Max length exceeded")) return "refused";
    // It refuses keys of maps that are no text, too, of which a decoder that skips them need not know.
    return error instanceof RangeError ? "refused" : undefined;
  }
  if (!Array.isArray(value) || value.length < 2) return "refused";
  const [time, list, rank] = value;
  if (!isAbsent(time) && typeof time !== "number" && typeof time !== "bigint") return "refused";
  if (!Array.isArray(list) || !(isAbsent(rank) || (isInteger(rank) && rank >= 0 && rank <= 65_535))) return "refused";
  return list.every(isJudged) ? decodeNaively(payload) : undefined;
}

describe.each<EventDialect>(["vllm-0.23", "sglang-array"])("%s", (dialect) => {
  const payload = encodeEventMessage(events, dialect, { timestampS: 1.5, rank: 3 });

  test("a message with a byte replaced by another is read as a library reads it, or refused with it", () => {
    const decoder = createEventDecoder();
    let [tried, judged] = [0, 0];
    for (let at = 0; at < payload.length; at++) {
      for (let byte = 0; byte < 256; byte++) {
        if (!isTried(at, byte)) continue;
        tried += 1;
        const changed = payload.with(at, byte);
        const report = decoder.decode(changed);
        const expected = expectedOf(changed);
        if (expected === undefined) continue;
        judged += 1;
        const where = `byte ${at} as 0x${byte.toString(16)}`;
        const { refused, unknownEvents: unknown, malformedEvents: malformed } = report;
        const { timestampS, rank } = decoder.batch;
        const read = { timestampS, rank, events: plainEvents(decoder.batch), unknown, malformed };
        const outcome = refused === undefined ? read : "refused";
        // Comparing without the test library first: it takes seconds for so many messages.
        if (!isDeepStrictEqual(outcome, expected)) expect(outcome, where).toEqual(expected);
      }
    }
    expect(judged).toBeGreaterThan(0.9 * tried);
  });

  test("a message with any one byte left out, or one put in, never passes for more bytes than it has", () => {
    const decoder = createEventDecoder();
    const whole = [...payload];
    for (let at = 0; at < whole.length; at++) {
      for (const changed of [whole.toSpliced(at, 1), whole.toSpliced(at, 0, 0xc0), whole.toSpliced(at, 0, 0x91)]) {
        const bytes = Uint8Array.from(changed);
        const report = decoder.decode(bytes);
        const expected = expectedOf(bytes);
        if (expected !== undefined) expect(report.refused !== undefined, `byte ${at}`).toBe(expected === "refused");
      }
    }
  });
});
