import { createGrowableBuffer } from "./growable-buffer.ts";
import { joinUsage, readUsageReport, type Usage, type UsageReport } from "./usage.ts";

/** Reads usage from the JSON body of an answer on its way to the client. */
export interface JsonUsageReader {
  push(chunk: Buffer): void;
  /** The last report seen, or undefined. */
  usage(): Usage | undefined;
}

/** A longer report is not read: SGLang's `meta_info` may contain log-probabilities. */
const maxReportBytes = 1_048_576;
/** Longest key, with its colon and surrounding white space, that is taken for a report. */
const maxKeyBytes = 64;

const usageKey = Buffer.from('"usage"');
const metaKey = Buffer.from('"meta_info"');
const quote = 0x22;
const colon = 0x3a;
const backslash = 0x5c;
const bracketBit = 0x20;
const openBrace = 0x7b;
const closeBrace = 0x7d;

/**
 * Creates the reader for one body. A native search finds each `"usage"` or `"meta_info"` followed by an object, and
 * only that object is parsed. So the surrounding vectors, texts and token ids cost next to nothing and are not kept. A
 * `"usage"` inside a text has escaped quotes and does not match. The last object with token counts wins, because
 * engines write the report after the choices.
 */
export function createJsonUsageReader(): JsonUsageReader {
  /** The end of the last chunk, which may contain the beginning of a key. */
  let carry: Buffer | undefined;
  const capture = createObjectCapture();
  let last: UsageReport | undefined;

  return {
    push(chunk) {
      const bytes = carry ? Buffer.concat([carry, chunk]) : chunk;
      carry = undefined;
      // Each key is searched for only past its last match, so each byte is scanned once per key.
      let usageAt = bytes.indexOf(usageKey);
      let metaAt = bytes.indexOf(metaKey);
      let at = 0;
      while (at < bytes.length) {
        if (!capture.active()) {
          if (usageAt >= 0 && usageAt < at) usageAt = bytes.indexOf(usageKey, at);
          if (metaAt >= 0 && metaAt < at) metaAt = bytes.indexOf(metaKey, at);
          const key = metaAt < 0 || (usageAt >= 0 && usageAt < metaAt) ? usageAt : metaAt;
          if (key < 0) {
            carry = bytes.subarray(Math.max(at, bytes.length - maxKeyBytes));
            return;
          }
          const value = valueStart(bytes, key);
          if (value === bytes.length && bytes.length - key <= maxKeyBytes) {
            carry = bytes.subarray(key);
            return;
          }
          at = value;
          if (bytes[value] !== openBrace) continue;
        }
        at = capture.take(bytes, at);
        const object = capture.result();
        if (object) last = readUsageReport(parseObject(object)) ?? last;
      }
    },
    usage: () => joinUsage(undefined, last),
  };
}

interface ObjectCapture {
  active(): boolean;
  /** Takes bytes from `from` on and returns where it stopped. The first call starts at an opening brace. */
  take(bytes: Buffer, from: number): number;
  /** Returns the object once it is complete. */
  result(): Buffer | undefined;
}

/** Collects one balanced JSON object, which may span several chunks. */
function createObjectCapture(): ObjectCapture {
  const captured = createGrowableBuffer();
  let depth = 0;
  let inString = false;
  let escaped = false;
  let complete: Buffer | undefined;
  const step = (code: number): void => {
    if (escaped) escaped = false;
    else if (inString) {
      if (code === backslash) escaped = true;
      else if (code === quote) inString = false;
    } else if (code === quote) inString = true;
    else if ((code | bracketBit) === openBrace) depth++;
    else if ((code | bracketBit) === closeBrace) depth--;
  };
  return {
    active: () => depth > 0,
    take(bytes, from) {
      const limit = Math.min(bytes.length, from + maxReportBytes - captured.size());
      let at = from;
      do step(bytes[at++] ?? 0);
      while (depth > 0 && at < limit);
      captured.append(bytes.subarray(from, at));
      if (depth === 0) complete = captured.take();
      else if (captured.size() >= maxReportBytes) {
        captured.take();
        depth = 0;
        inString = false;
        escaped = false;
      }
      return at;
    },
    result() {
      const object = complete;
      complete = undefined;
      return object;
    },
  };
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

function parseObject(object: Buffer): unknown {
  try {
    return JSON.parse(object.toString("utf8"));
  } catch {
    return undefined;
  }
}
