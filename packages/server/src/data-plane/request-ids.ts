import type { Random } from "@espalier/common";

const usableId = /^[\x21-\x7e]{1,128}$/;
const usableTraceparent = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?$/;

/** The ids that tie one request's log lines, headers and engine logs together. */
export interface RequestIds {
  readonly requestId: string;
  /** W3C Trace Context (2021) `traceparent`: the client's when valid, else a new one with the sampled flag off. */
  readonly traceparent: string;
}

export function readRequestIds(
  requestIdHeader: string | undefined,
  traceparentHeader: string | undefined,
  random: Random,
): RequestIds {
  return {
    requestId:
      requestIdHeader !== undefined && usableId.test(requestIdHeader) ? requestIdHeader : `req-${randomHex(random, 3)}`,
    traceparent:
      traceparentHeader !== undefined && usableTraceparent.test(traceparentHeader)
        ? traceparentHeader
        : `00-${randomHex(random, 4)}-${randomHex(random, 2)}-00`,
  };
}

/** Numbers above 2^31 take a slow path in `toString`, which a table of bytes spares. */
const hexOfByte = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

/** `words` times 8 hexadecimal digits, never all zero. */
function randomHex(random: Random, words: number): string {
  let text = "";
  for (let word = 0; word < words; word++) {
    const drawn = 1 + random.integer(0xffff_ffff);
    text += hexOfByte[drawn >>> 24]! + hexOfByte[(drawn >>> 16) & 0xff]!;
    text += hexOfByte[(drawn >>> 8) & 0xff]! + hexOfByte[drawn & 0xff]!;
  }
  return text;
}
