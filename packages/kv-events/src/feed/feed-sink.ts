import type { EngineEventBatch } from "@espalier/prefix-index";
import type { FeedReason, FeedState, NewLifeReason } from "./feed-state.ts";

/** Takes what a feed reads, synchronously and in order. */
export interface FeedSink {
  /**
   * The events of one message. Within a life numbers ascend; one that is left out is a hole, and the state says so.
   *
   * @param batch reused for the next message
   * @param checksum CRC-32 of the payload: with number and timestamp it identifies the message among all lives
   */
  batch(batch: EngineEventBatch, sequence: number, checksum: number): void;
  /** The engine is another process now: all its blocks are gone. The first life of a feed is not told. */
  newLife(reason: NewLifeReason): void;
  /** Told on every change of either. */
  state(state: FeedState, reason: FeedReason): void;
}
