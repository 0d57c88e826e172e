import type { Random } from "@espalier/core";
import { namesEngines } from "@espalier/routing";

const usableId = /^[\x21-\x7e]{1,128}$/;
const usableTraceparent = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?$/;

/**
 * The id that connects a request's log lines, headers and engine logs: the client's if usable, else a new one.
 *
 * @param isTrusted whether the client may name engines in it
 */
export function readRequestId(header: string | string[] | undefined, random: Random, isTrusted = false): string {
  const isUsable = typeof header === "string" && usableId.test(header) && (isTrusted || !namesEngines(header));
  return isUsable ? header : `req-${randomHex(random, 3)}`;
}

/** A new `traceparent` (W3C Trace Context, 2021) with the sampled flag off. */
export function newTraceparent(random: Random): string {
  return `00-${randomHex(random, 4)}-${randomHex(random, 2)}-00`;
}

/** The client's `traceparent`; undefined when absent or invalid. */
export function callerTraceparent(header: string | string[] | undefined): string | undefined {
  return typeof header === "string" && usableTraceparent.test(header) ? header : undefined;
}

/** Holds the bytes that become digits: joining digits would make a text for each of them. */
const drawn = Buffer.alloc(16);

/** `words` times 8 hexadecimal digits, never all zero; at most four times. */
function randomHex(random: Random, words: number): string {
  for (let word = 0; word < words; word++) drawn.writeUInt32BE(1 + random.integer(0xffff_ffff), 4 * word);
  return drawn.toString("hex", 0, 4 * words);
}
