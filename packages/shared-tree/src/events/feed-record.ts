import type { Clock, Meter } from "@espalier/core";
import type { RefusalReason } from "@espalier/engine-model/kv-events";
import type { FeedReason, FeedSink, FeedState } from "./feed-state.ts";
import type { ReplayOutcome } from "./replay-run.ts";

/** How many of the latest holes the description lists. */
const listedGaps = 8;

/** A hole in the numbers of the current epoch; both end numbers are missing. */
interface SequenceGap {
  readonly from: number;
  readonly to: number;
  readonly reason: FeedReason;
}

/** What a feed counts and remembers about itself. */
export class FeedRecord {
  readonly #clock: Clock;
  readonly #sink: FeedSink;
  readonly #meters: FeedMeters;
  readonly #lag = new LagTracker();
  readonly #counts = Object.fromEntries(feedCounters.map((name) => [name, 0])) as Record<FeedCounter, number>;
  #refused = 0;
  #lagMs: number | undefined;
  #lastMessageMs: number | undefined;
  #gaps: SequenceGap[] = [];
  #lastReplay: ReplayResult | undefined;
  state: FeedState = "off";
  reason: FeedReason = "not-started";
  #sinceWallMs: number;

  constructor(options: { clock: Clock; meter: Meter; key: string; sink: FeedSink }) {
    this.#clock = options.clock;
    this.#sink = options.sink;
    this.#meters = createFeedMeters(options.meter, options.key);
    this.#sinceWallMs = options.clock.wallMs();
  }

  enter(state: FeedState, reason: FeedReason): void {
    if (state === this.state && reason === this.reason) return;
    if (state !== this.state) this.#sinceWallMs = this.#clock.wallMs();
    this.state = state;
    this.reason = reason;
    this.#meters.state(state);
    this.#sink.state(state, reason);
  }

  count(counter: FeedCounter, amount = 1): void {
    if (amount === 0) return;
    this.#counts[counter] += amount;
    this.#meters.add(counter, amount);
  }

  refuse(reason: MessageRefusal): void {
    this.#refused += 1;
    this.#meters.refused(reason);
  }

  gap(gap: SequenceGap): void {
    this.count("gaps");
    this.count("missed_messages", gap.to - gap.from + 1);
    this.#gaps.push(gap);
    if (this.#gaps.length > listedGaps) this.#gaps.shift();
  }

  newEpoch(): void {
    this.count("restarts");
    this.#gaps = [];
  }

  replayEnded(result: ReplayResult): void {
    this.#lastReplay = result;
    this.#meters.replay(result);
  }

  received(): void {
    this.#lastMessageMs = this.#clock.nowMs();
  }

  /** @param timestampS the engine's clock in a live message, Unix seconds or NaN */
  published(timestampS: number): void {
    if (!Number.isFinite(timestampS)) return;
    this.#lagMs = this.#lag.observe(timestampS * 1_000, this.#clock.wallMs(), this.#clock.nowMs());
    this.#meters.lag(this.#lagMs);
    this.#sink.lag?.(this.#lagMs);
  }

  remove(): void {
    this.#meters.remove();
  }

  describe() {
    const last = this.#lastMessageMs;
    const counts = this.#counts;
    return {
      state: this.state,
      reason: this.reason,
      since: new Date(this.#sinceWallMs).toISOString(),
      lastMessageAgeMs: last === undefined ? null : Math.round(this.#clock.nowMs() - last),
      lagMs: this.#lagMs === undefined ? null : Math.round(this.#lagMs),
      clockOffsetMs: this.#lag.offsetMs === undefined ? null : Math.round(this.#lag.offsetMs),
      lastReplay: this.#lastReplay ?? null,
      messages: counts.messages,
      events: counts.events,
      blocksStored: counts.blocks_stored,
      blocksRemoved: counts.blocks_removed,
      undecodedEvents: counts.undecoded_events,
      refusedMessages: this.#refused,
      duplicates: counts.duplicates,
      restarts: counts.restarts,
      resyncs: counts.resyncs,
      gaps: counts.gaps,
      missedMessages: counts.missed_messages,
      latestGaps: this.#gaps.map(({ from, to, reason }) => ({ from, to, reason })),
    };
  }
}

/** Why a message was not passed on: the decoder's reasons, bad frames around it, or an exception. */
type MessageRefusal = RefusalReason | "frames" | "failed";

/** `abandoned`: the connection was lost, or there was a reason to start a new replay. */
type ReplayResult = ReplayOutcome | "abandoned";

const stateValues: Readonly<Record<FeedState, number>> = { off: 0, stale: 1, replaying: 2, partial: 3, live: 4 };

/** Counters labelled only with the feed. */
const counters = {
  messages: "KV event messages processed, live and replayed.",
  events: "KV events in processed messages.",
  blocks_stored: "Blocks reported by engines as stored.",
  blocks_removed: "Blocks reported by engines as removed.",
  undecoded_events: "KV events skipped for an unknown tag or an invalid field.",
  gaps: "Sequence number gaps that were not filled.",
  missed_messages: "Messages lost in sequence number gaps.",
  duplicates: "Duplicate messages.",
  restarts: "New sequences of events that the feed met while it was read, as after an engine's restart.",
  resyncs: "Message queue overflows, followed by a replay.",
  open_failures: "Failed attempts to open the event socket; the feed is off until the next one.",
} as const;

type FeedCounter = keyof typeof counters;
const feedCounters = Object.keys(counters) as readonly FeedCounter[];

/** Registers the metrics of feeds. Their series appear with the feeds. */
export function registerFeedMetrics(meter: Meter) {
  const labels = ["feed"];
  return {
    named: feedCounters.map((name) => meter.counter(`espalier_kv_feed_${name}_total`, counters[name], labels)),
    refused: meter.counter("espalier_kv_feed_refused_messages_total", "Messages skipped entirely, by reason.", [
      "feed",
      "reason",
    ]),
    replays: meter.counter("espalier_kv_feed_replays_total", "Replay requests to engines, by outcome.", [
      "feed",
      "outcome",
    ]),
    state: meter.gauge(
      "espalier_kv_feed_state",
      "State of the feed: 0 off, 1 stale, 2 replaying, 3 partial, 4 live.",
      labels,
    ),
    lag: meter.gauge(
      "espalier_kv_feed_lag_seconds",
      "Delay of the latest live message over the fastest of the last minutes, independent of clock offset, in seconds.",
      labels,
    ),
  };
}

/** The metrics of one feed. Report nothing after `remove`, or a series would come back. */
type FeedMeters = ReturnType<typeof createFeedMeters>;

/** @param key the target's key: the set of targets is bounded */
function createFeedMeters(meter: Meter, key: string) {
  const { named, refused, replays, state, lag } = registerFeedMetrics(meter);
  const series = Object.fromEntries(feedCounters.map((name, at) => [name, named[at]!.series(key)]));
  const stateSeries = state.series(key);
  const lagSeries = lag.series(key);
  return {
    add: (counter: FeedCounter, amount: number): void => series[counter]!.add(amount),
    refused: (reason: MessageRefusal): void => refused.series(key, reason).add(),
    replay: (result: ReplayResult): void => replays.series(key, result).add(),
    state: (value: FeedState): void => stateSeries.set(stateValues[value]),
    lag: (lagMs: number): void => lagSeries.set(lagMs / 1_000),
    remove(): void {
      for (const metric of [...named, refused, replays, state, lag]) metric.forget("feed", key);
    },
  };
}

/** How long a minimum is valid, in milliseconds: clocks drift apart by up to 100 ppm, 6 ms per minute. */
const windowMs = 60_000;

/**
 * The delay from an engine's clock to ours, which need not agree. The smallest difference over the last one to two
 * minutes is the offset between the clocks plus the shortest delay; lag is what exceeds it. In captures the shortest
 * delay was 1-4 ms.
 */
export class LagTracker {
  #windowStartMs = Number.NEGATIVE_INFINITY;
  #lowestMs = Number.POSITIVE_INFINITY;
  #lowestBeforeMs = Number.POSITIVE_INFINITY;

  /**
   * @param publishedMs engine's wall clock
   * @param receivedMs our wall clock
   * @param nowMs our monotonic clock
   * @returns milliseconds, not negative
   */
  observe(publishedMs: number, receivedMs: number, nowMs: number): number {
    const differenceMs = receivedMs - publishedMs;
    if (nowMs - this.#windowStartMs >= windowMs) {
      const isNext = nowMs - this.#windowStartMs < 2 * windowMs;
      this.#lowestBeforeMs = isNext ? this.#lowestMs : Number.POSITIVE_INFINITY;
      this.#lowestMs = Number.POSITIVE_INFINITY;
      this.#windowStartMs = nowMs;
    }
    this.#lowestMs = Math.min(this.#lowestMs, differenceMs);
    return differenceMs - Math.min(this.#lowestMs, this.#lowestBeforeMs);
  }

  /** Our clock minus the engine's, with the shortest delay; undefined before the first message. Milliseconds. */
  get offsetMs(): number | undefined {
    const lowest = Math.min(this.#lowestMs, this.#lowestBeforeMs);
    return lowest === Number.POSITIVE_INFINITY ? undefined : lowest;
  }
}
