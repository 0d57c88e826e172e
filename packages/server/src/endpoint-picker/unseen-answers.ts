import type { Clock } from "@espalier/core";
import type { Target } from "@espalier/engines";

/** A request whose answer nobody shows to this router. */
interface UnseenRun {
  readonly target: Target | undefined;
  /** Milliseconds that its prompt takes. */
  readonly expectedPromptMs: number;
  /** Its prompt is taken to be computed. */
  assumePrompt(): void;
  /** It is taken to be over. */
  finishUnseen(): void;
}

interface Entry {
  readonly run: UnseenRun;
  readonly sinceMs: number;
  hasPrompt: boolean;
}

/**
 * How long a request counts as running at an engine without metrics. Rather too short: load that does not end would fill
 * the queues of a router whose engines are idle.
 */
const withoutMetricsMs = 2_000;

/** Most requests that wait for their end; beyond it the oldest one counts as over. */
export const maxUnseen = 65_536;

interface UnseenAnswersOptions {
  readonly clock: Clock;
  /** How long a request counts as running at most. */
  readonly releaseAfterMs: number;
  /** Requests in flight to a target that other routers have announced. */
  readonly peerInFlight: (target: Target) => number;
}

/**
 * Requests that a gateway sends on without showing their answers. Each counts as running at its engine until the engine's
 * metrics show fewer requests than all routers believe to run there, or until a fixed time has passed. Its prompt counts as
 * waiting for as long as it is expected to take.
 */
export class UnseenAnswers {
  readonly #options: UnseenAnswersOptions;
  /** The oldest first. */
  readonly #byTarget = new Map<Target, { entries: Entry[]; readMs: number }>();
  #count = 0;

  constructor(options: UnseenAnswersOptions) {
    this.#options = options;
  }

  get count(): number {
    return this.#count;
  }

  add(run: UnseenRun): void {
    const { target } = run;
    if (!target) {
      run.finishUnseen();
      return;
    }
    if (this.#count >= maxUnseen) this.#dropOldest();
    const known = this.#byTarget.get(target);
    const entry = { run, sinceMs: this.#options.clock.nowMs(), hasPrompt: false };
    if (known) known.entries.push(entry);
    else this.#byTarget.set(target, { entries: [entry], readMs: Number.NEGATIVE_INFINITY });
    this.#count += 1;
  }

  /** Ends what is over by now. Call it a few times a second. */
  sweep(): void {
    const nowMs = this.#options.clock.nowMs();
    for (const [target, waiting] of this.#byTarget) {
      const { entries } = waiting;
      const sampledMs = nowMs - target.signals.ageMs();
      const isNew = sampledMs > waiting.readMs;
      waiting.readMs = Math.max(waiting.readMs, sampledMs);
      let over = isNew ? this.#finishedAt(target) : 0;
      const { releaseAfterMs } = this.#options;
      const isBlind = Number.isNaN(target.signals.running + target.signals.waiting);
      const mostMs = isBlind ? Math.min(releaseAfterMs, withoutMetricsMs) : releaseAfterMs;
      for (const entry of entries) {
        if (entry.hasPrompt || nowMs - entry.sinceMs < entry.run.expectedPromptMs) continue;
        entry.hasPrompt = true;
        entry.run.assumePrompt();
      }
      while (entries.length > 0) {
        const { sinceMs } = entries[0]!;
        const isOverdue = nowMs - sinceMs >= mostMs;
        // A scrape says nothing of a request that came after it.
        if (!isOverdue && (over < 1 || sinceMs >= sampledMs)) break;
        if (!isOverdue) over -= 1;
        this.#finishFirst(entries);
      }
      if (entries.length === 0) this.#byTarget.delete(target);
    }
  }

  /** Ends all of them. */
  stop(): void {
    for (const { entries } of this.#byTarget.values()) while (entries.length > 0) this.#finishFirst(entries);
    this.#byTarget.clear();
  }

  /** How many of this router's requests the engine did not have any more at its last scrape. */
  #finishedAt(target: Target): number {
    const { running, waiting, inFlightAtScrape } = target.signals;
    const busy = running + waiting;
    if (Number.isNaN(busy) || Number.isNaN(inFlightAtScrape)) return 0;
    const believed = inFlightAtScrape + this.#options.peerInFlight(target);
    // Each router ends its own share.
    return believed > busy ? Math.ceil(((believed - busy) * inFlightAtScrape) / believed) : 0;
  }

  #dropOldest(): void {
    let oldest: { readonly target: Target; readonly entries: Entry[] } | undefined;
    for (const [target, { entries }] of this.#byTarget) {
      if (!oldest || entries[0]!.sinceMs < oldest.entries[0]!.sinceMs) oldest = { target, entries };
    }
    if (!oldest) return;
    this.#finishFirst(oldest.entries);
    if (oldest.entries.length === 0) this.#byTarget.delete(oldest.target);
  }

  #finishFirst(entries: Entry[]): void {
    const entry = entries.shift();
    if (!entry) return;
    this.#count -= 1;
    entry.run.finishUnseen();
  }
}
