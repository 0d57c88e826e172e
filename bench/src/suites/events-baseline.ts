import { decode } from "@msgpack/msgpack";
import type { FeedMessage } from "./events-traffic.ts";

/** Decodes messages with a general library, hashes exact: what a reader without a decoder of its own would do. */
export function decodeWithLibrary(messages: readonly FeedMessage[]): number {
  let events = 0;
  for (const { payload } of messages) {
    const [, decoded] = decode(payload, { useBigInt64: true }) as [number, readonly unknown[]];
    events += decoded.length;
  }
  return events;
}
