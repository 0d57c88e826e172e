import type { Clock, Meter } from "@espalier/common";
import {
  createFeedMeters,
  type FeedCounter,
  type FeedMeters,
  feedCounters,
  type MessageRefusal,
  type ReplayResult,
} from "./feed-meters.ts";
import type { FeedSink } from "./feed-sink.ts";
import type { FeedReason, FeedState } from "./feed-state.ts";
import { LagTracker } from "./lag-tracker.ts";

/** Holes that the description lists, the latest ones. */
const listedGaps = 8;

/** A hole in the numbers of the present life, both ends missing. */
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

  newLife(): void {
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
