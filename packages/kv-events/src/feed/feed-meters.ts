import type { Meter } from "@espalier/common";
import { type RefusalReason, refusalReasons } from "../codec/decode-report.ts";
import type { FeedState } from "./feed-state.ts";
import type { ReplayOutcome } from "./replay-run.ts";

/** Why a message was not handed on: the decoder's reasons, the frames around it, or something that threw. */
export type MessageRefusal = RefusalReason | "frames" | "failed";

const refusals: readonly MessageRefusal[] = [...refusalReasons, "frames", "failed"];
/** `abandoned`: the connection was lost, or there was a reason to ask afresh. */
export type ReplayResult = ReplayOutcome | "abandoned";
const replayResults: readonly ReplayResult[] = ["complete", "empty", "failed", "abandoned"];
const stateValues: Readonly<Record<FeedState, number>> = { off: 0, stale: 1, replaying: 2, partial: 3, live: 4 };

/** What is counted without a label beside the feed's. */
const counters = {
  messages: "Messages of KV events that were handed on, live and replayed.",
  events: "KV events in them.",
  blocks_stored: "Blocks that engines announced as stored.",
  blocks_removed: "Blocks that engines announced as removed.",
  undecoded_events: "KV events left out because their tag is unknown or a field is wrong.",
  gaps: "Holes in the sequence numbers that could not be filled.",
  missed_messages: "Messages in those holes, as far as the engine can have sent them.",
  duplicates: "Messages that came again.",
  restarts: "New lives of engines.",
  resyncs: "Times that too many messages waited and were dropped to ask again.",
} as const;

export type FeedCounter = keyof typeof counters;
export const feedCounters = Object.keys(counters) as readonly FeedCounter[];

/** The metrics of one feed. Nothing may be reported after `remove`, or a series would come back. */
export interface FeedMeters {
  add(counter: FeedCounter, amount: number): void;
  refused(reason: MessageRefusal): void;
  replay(result: ReplayResult): void;
  state(state: FeedState): void;
  lag(lagMs: number): void;
  remove(): void;
}

/** Registers the metrics of feeds, with no series yet: those come with the feeds. */
export function registerFeedMetrics(meter: Meter) {
  const labels = ["feed"];
  return {
    named: feedCounters.map((name) =>
      meter.counter({ name: `espalier_kv_feed_${name}_total`, help: counters[name], labels }),
    ),
    refused: meter.counter({
      name: "espalier_kv_feed_refused_messages_total",
      help: "Messages that were left out as a whole, by reason.",
      labels: ["feed", "reason"],
    }),
    replays: meter.counter({
      name: "espalier_kv_feed_replays_total",
      help: "Requests for an engine's history, by how they ended.",
      labels: ["feed", "outcome"],
    }),
    state: meter.gauge({
      name: "espalier_kv_feed_state",
      help: "State of the feed: 0 off, 1 stale, 2 replaying, 3 partial, 4 live.",
      labels,
    }),
    lag: meter.gauge({
      name: "espalier_kv_feed_lag_seconds",
      help: "Delay of the latest live message beyond the fastest of the last minutes, whatever the clocks' offset.",
      labels,
    }),
  };
}

/** @param key the target's key: targets are a bounded set */
export function createFeedMeters(meter: Meter, key: string): FeedMeters {
  const { named, refused, replays, state, lag } = registerFeedMetrics(meter);
  const series = Object.fromEntries(feedCounters.map((name, at) => [name, named[at]!.series(key)]));
  const stateSeries = state.series(key);
  const lagSeries = lag.series(key);
  return {
    add: (counter, amount) => series[counter]!.add(amount),
    refused: (reason) => refused.series(key, reason).add(),
    replay: (result) => replays.series(key, result).add(),
    state: (value) => stateSeries.set(stateValues[value]),
    lag: (lagMs) => lagSeries.set(lagMs / 1_000),
    remove() {
      for (const metric of [...named, state, lag]) metric.remove(key);
      for (const reason of refusals) refused.remove(key, reason);
      for (const result of replayResults) replays.remove(key, result);
    },
  };
}
