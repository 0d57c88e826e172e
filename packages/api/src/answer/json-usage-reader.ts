import { parseJson } from "@espalier/core";
import { GrowableBuffer } from "../growable-buffer.ts";
import { joinUsage, readUsageReport, type Usage, type UsageReport } from "./usage.ts";

/** A longer report is not read: SGLang's `meta_info` may contain log-probabilities. */
const maxReportBytes = 1_048_576;
/** Longest key, with its colon and surrounding whitespace, that is taken for a report. */
const maxKeyBytes = 64;

const usageKey = Buffer.from('"usage"');
const metaKey = Buffer.from('"meta_info"');
const quote = 0x22;
const colon = 0x3a;
const backslash = 0x5c;
const bracketBit = 0x20;
const openBrace = 0x7b;
const closeBrace = 0x7d;

/** Creates the reader for one body. */
export function createJsonUsageReader(): JsonUsageReader {
  return new JsonUsageReader();
}

/**
 * Reads usage from the JSON body of an answer on its way to the client. A native search finds each `"usage"` or
 * `"meta_info"` followed by an object, and only that object is parsed. So the surrounding vectors, texts and token ids
 * cost next to nothing and are not kept. A `"usage"` inside a text has escaped quotes and does not match. The last
 * object with token counts wins, because engines write the report after the choices.
 */
export class JsonUsageReader {
  /** The end of the last chunk, which may contain the beginning of a key. */
  #carry: Buffer | undefined;
  readonly #capture = new ObjectCapture();
  #last: UsageReport | undefined;

  push(chunk: Buffer): void {
    const capture = this.#capture;
    const bytes = this.#carry ? Buffer.concat([this.#carry, chunk]) : chunk;
    this.#carry = undefined;
    // Each key is searched for only past its last match, so each byte is scanned once per key.
    let usageAt = bytes.indexOf(usageKey);
    let metaAt = bytes.indexOf(metaKey);
    let at = 0;
    while (at < bytes.length) {
      if (!capture.isActive) {
        if (usageAt >= 0 && usageAt < at) usageAt = bytes.indexOf(usageKey, at);
        if (metaAt >= 0 && metaAt < at) metaAt = bytes.indexOf(metaKey, at);
        const key = metaAt < 0 || (usageAt >= 0 && usageAt < metaAt) ? usageAt : metaAt;
        if (key < 0) {
          this.#carry = bytes.subarray(Math.max(at, bytes.length - maxKeyBytes));
          return;
        }
        const value = valueStart(bytes, key);
        if (value === bytes.length && bytes.length - key <= maxKeyBytes) {
          this.#carry = bytes.subarray(key);
          return;
        }
        at = value;
        if (bytes[value] !== openBrace) continue;
      }
      at = capture.take(bytes, at);
      if (capture.complete) this.#last = readUsageReport(parseJson(capture.complete.toString("utf8"))) ?? this.#last;
    }
  }

  /** The last report seen, or undefined. */
  usage(): Usage | undefined {
    return joinUsage(undefined, this.#last);
  }
}

/** Collects one balanced JSON object, which may span several chunks. */
class ObjectCapture {
  /** The object that the last call of `take` completed. */
  complete: Buffer | undefined;
  readonly #captured = new GrowableBuffer();
  #depth = 0;
  #inString = false;
  #escaped = false;

  get isActive(): boolean {
    return this.#depth > 0;
  }

  /** Takes bytes from `from` on and returns where it stopped. The first call starts at an opening brace. */
  take(bytes: Buffer, from: number): number {
    const captured = this.#captured;
    const limit = Math.min(bytes.length, from + maxReportBytes - captured.size);
    let at = from;
    do this.#step(bytes[at++] ?? 0);
    while (this.#depth > 0 && at < limit);
    const piece = bytes.subarray(from, at);
    const isComplete = this.#depth === 0;
    // Nearly every report comes in one piece.
    if (!isComplete || captured.size > 0) captured.append(piece);
    this.complete = isComplete ? (captured.size > 0 ? captured.take() : piece) : undefined;
    if (this.#depth > 0 && captured.size >= maxReportBytes) {
      captured.take();
      this.#depth = 0;
      this.#inString = false;
      this.#escaped = false;
    }
    return at;
  }

  #step(code: number): void {
    if (this.#escaped) this.#escaped = false;
    else if (this.#inString) {
      if (code === backslash) this.#escaped = true;
      else if (code === quote) this.#inString = false;
    } else if (code === quote) this.#inString = true;
    else if ((code | bracketBit) === openBrace) this.#depth++;
    else if ((code | bracketBit) === closeBrace) this.#depth--;
  }
}

/** Offset of the value of the key at `key`; just after the key when no colon follows; the length when it is cut off. */
function valueStart(bytes: Buffer, key: number): number {
  const keyEnd = bytes.indexOf(quote, key + 1) + 1;
  const at = skipSpace(bytes, keyEnd);
  if (at === bytes.length) return at;
  return bytes[at] === colon ? skipSpace(bytes, at + 1) : keyEnd;
}

function skipSpace(bytes: Buffer, from: number): number {
  let at = from;
  while (at < bytes.length && (bytes[at] ?? 0) <= 0x20) at++;
  return at;
}
