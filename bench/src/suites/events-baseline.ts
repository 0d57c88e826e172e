import { decode } from "@msgpack/msgpack";
import type { FeedMessage } from "./events-traffic.ts";

/** Decodes messages with a general library and exact hashes, like a reader without its own decoder. */
export function decodeWithLibrary(messages: readonly FeedMessage[]): number {
  let events = 0;
  for (const { payload } of messages) {
    const [, decoded] = decode(payload, { useBigInt64: true }) as [number, readonly unknown[]];
    events += decoded.length;
  }
  return events;
}
