import type { Cancel, Clock, Scheduler } from "@espalier/common";
import { hashOf } from "@espalier/prefix-index";

/** One choice of a target, for people who watch. Nothing of the prompt is in it. */
export interface Decision {
  /** Counts up from 1 while somebody watches. */
  readonly number: number;
  /** Milliseconds since the Unix epoch. */
  readonly atMs: number;
  readonly endpoint: string;
  readonly model: string;
  readonly policy: string;
  readonly reason: string;
  readonly target: string;
  readonly promptTokens: number;
  /** Of them those that the target is thought to hold, those of pools included. */
  readonly matchedTokens: number;
  /** Tells the session from others, the same in every router; null without one. The key itself is not told. */
  readonly session: string | null;
  /** Null for what never waits. */
  readonly class: string | null;
  readonly queuedMs: number;
  /** From 1; a later one was made because the ones before it failed. */
  readonly attempt: number;
  /** The engine that computes the prompt, where that is another one. */
  readonly prefillWorker: string | null;
}

/** A decision as it is noted: with the session's key, which stays here. */
export interface NotedDecision extends Omit<Decision, "number" | "atMs" | "session"> {
  readonly sessionKey: string | undefined;
}

export interface DecisionBatch {
  readonly decisions: readonly Decision[];
  /** Made since the batch before and not told, because there were too many. */
  readonly skipped: number;
}

/** Tells those who watch what was decided. While nobody does, nothing is kept and asking costs one comparison. */
export interface DecisionFeed {
  readonly isWatched: boolean;
  /** To be called only while `isWatched`. */
  note(decision: NotedDecision): void;
  /**
   * Tells the latest decisions at once, then new ones in batches.
   *
   * @returns undefined when too many watch already
   */
  watch(listener: (batch: DecisionBatch) => void): Cancel | undefined;
}

/** Who may watch at a time. */
export const maxDecisionWatchers = 64;
/** Latest decisions that somebody who begins to watch is told. */
export const keptDecisions = 256;
/** Decisions of a batch; further ones are counted. */
export const maxBatchDecisions = 64;
export const batchMs = 100;

export interface DecisionFeedOptions {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** The same in all routers and known to nobody else, so that names of sessions do not tell whose they are. */
  readonly seed: string;
}

export function createDecisionFeed({ clock, scheduler, seed }: DecisionFeedOptions): DecisionFeed {
  const listeners = new Set<(batch: DecisionBatch) => void>();
  let kept: Decision[] = [];
  let batch: Decision[] = [];
  let skipped = 0;
  let number = 0;
  let cancelFlush: Cancel = () => {};
  let isWatched = false;

  const flush = (): void => {
    if (batch.length === 0 && skipped === 0) return;
    const told: DecisionBatch = { decisions: batch, skipped };
    kept = [...kept, ...batch].slice(-keptDecisions);
    batch = [];
    skipped = 0;
    for (const listener of [...listeners]) listener(told);
  };
  const end = (): void => {
    cancelFlush();
    isWatched = false;
    kept = [];
    batch = [];
    skipped = 0;
  };

  return {
    get isWatched() {
      return isWatched;
    },
    note({ sessionKey, ...decision }) {
      number += 1;
      if (batch.length >= maxBatchDecisions) {
        skipped += 1;
        return;
      }
      const session = sessionKey ? nameOf(seed, decision.model, sessionKey) : null;
      batch.push({ number, atMs: clock.wallMs(), ...decision, session });
    },
    watch(listener) {
      if (listeners.size >= maxDecisionWatchers) return undefined;
      if (!isWatched) cancelFlush = scheduler.every(batchMs, flush);
      isWatched = true;
      listener({ decisions: kept, skipped: 0 });
      listeners.add(listener);
      return () => {
        if (listeners.delete(listener) && listeners.size === 0) end();
      };
    },
  };
}

/** Eight hexadecimal digits: enough to follow a session on a screen. */
function nameOf(seed: string, model: string, key: string): string {
  return hashOf(`watched session\n${seed}\n${model}\n${key}`).low.toString(16).padStart(8, "0");
}
