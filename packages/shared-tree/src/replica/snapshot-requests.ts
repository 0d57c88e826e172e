import type { Clock, Scheduler } from "@espalier/core";
import { type Origin, originKey, type SnapshotRequest, type SnapshotSink, subscribe } from "@espalier/mesh";

/** The asked peer may lack the target as well; then others are asked, so often and no sooner. */
const askAgainMs = 5_000;
/** Many targets turn out to be missing at about the same time, and a snapshot of everything may be on its way. */
const gatherMs = 50;
/** Requests for one target's snapshot. */
const maxAsked = 4;

export interface SnapshotRequestsOptions {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** Whether a target still waits for a snapshot. */
  readonly isLoading: (target: string) => boolean;
  /** No peer could give these. */
  readonly onGivenUp: (targets: readonly string[]) => void;
}

interface Asked {
  atMs: number;
  times: number;
}

/** Gathers the targets whose state must be fetched, so that they are asked for together. */
export type SnapshotRequests = ReturnType<typeof createSnapshotRequests>;

export function createSnapshotRequests(options: SnapshotRequestsOptions) {
  const { clock, scheduler, isLoading, onGivenUp } = options;
  const waiting = new Map<string, { readonly from: Origin | undefined; readonly targets: Set<string> }>();
  const asked = new Map<string, Asked>();
  const listeners = new Set<(request: SnapshotRequest) => void>();
  let isScheduled = false;
  let imports = 0;
  const flush = (): void => {
    isScheduled = false;
    // Snapshots that arrive now may bring it, so it is not asked for.
    if (imports > 0) return;
    const requests = [...waiting.values()];
    waiting.clear();
    for (const { from, targets } of requests) {
      const lacking = [...targets].filter(isLoading);
      if (lacking.length > 0) for (const listener of listeners) listener({ targets: lacking, from });
    }
  };
  const schedule = (): void => {
    if (isScheduled || imports > 0 || waiting.size === 0) return;
    isScheduled = true;
    scheduler.after(gatherMs, flush);
  };
  const add = (target: string, from: Origin | undefined): void => {
    const known = asked.get(target);
    asked.set(target, { atMs: clock.nowMs(), times: (known?.times ?? 0) + 1 });
    const key = from ? originKey(from) : "";
    const group = waiting.get(key);
    if (group) group.targets.add(target);
    else waiting.set(key, { from, targets: new Set([target]) });
    schedule();
  };
  const importEnded = (): void => {
    imports -= 1;
    for (const entry of asked.values()) entry.atMs = clock.nowMs();
    schedule();
  };
  return {
    add,
    /**
     * A snapshot begins to arrive, which may bring waiting targets. @returns the sink, which also reports when it ended
     */
    importing(sink: SnapshotSink): SnapshotSink {
      let isOpen = true;
      const ended = (): void => {
        if (isOpen) importEnded();
        isOpen = false;
      };
      imports += 1;
      return {
        frame: (bytes) => sink.frame(bytes),
        end() {
          try {
            return sink.end();
          } finally {
            ended();
          }
        },
        abort() {
          try {
            if (isOpen) sink.abort();
          } finally {
            ended();
          }
        },
      };
    },
    /**
     * Asks again for what has not come, or gives it up. Call it now and then.
     *
     * @param loading targets that wait for a snapshot
     */
    retry(loading: readonly string[]): void {
      if (imports > 0) return;
      const nowMs = clock.nowMs();
      const still = new Set(loading);
      for (const target of [...asked.keys()]) if (!still.has(target)) asked.delete(target);
      const givenUp: string[] = [];
      for (const target of loading) {
        const { atMs, times } = asked.get(target) ?? { atMs: Number.NEGATIVE_INFINITY, times: 0 };
        if (nowMs - atMs < askAgainMs) continue;
        if (times < maxAsked) add(target, undefined);
        else givenUp.push(target);
      }
      // A target that is needed again starts with its full number of attempts.
      for (const target of givenUp) asked.delete(target);
      if (givenUp.length > 0) onGivenUp(givenUp);
    },
    onRequest(listener: (request: SnapshotRequest) => void): () => void {
      return subscribe(listeners, listener);
    },
  };
}
