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

/** The requests of one target, the oldest first. */
class Waiting {
  /** When the scrape was taken that was read last. */
  readMs = Number.NEGATIVE_INFINITY;
  #entries: Entry[] = [];
  /** Those before it are over. To move up the rest for each that ends would cost the square of their number. */
  #first = 0;

  get first(): Entry | undefined {
    return this.#entries[this.#first];
  }

  push(entry: Entry): void {
    this.#entries.push(entry);
  }

  shift(): Entry | undefined {
    const entry = this.first;
    if (!entry) return undefined;
    this.#first += 1;
    if (2 * this.#first >= this.#entries.length) {
      this.#entries = this.#entries.slice(this.#first);
      this.#first = 0;
    }
    return entry;
  }

  *[Symbol.iterator](): Generator<Entry> {
    for (let at = this.#first; at < this.#entries.length; at++) yield this.#entries[at]!;
  }
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
}

/**
 * Requests that a gateway sends on without showing their answers. Each counts as running at its engine until the engine's
 * metrics show fewer requests than all routers believe to run there, or until a fixed time has passed. Its prompt counts as
 * waiting for as long as it is expected to take.
 */
export class UnseenAnswers {
  readonly #options: UnseenAnswersOptions;
  readonly #byTarget = new Map<Target, Waiting>();
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
    const waiting = this.#byTarget.get(target) ?? new Waiting();
    waiting.push({ run, sinceMs: this.#options.clock.nowMs(), hasPrompt: false });
    this.#byTarget.set(target, waiting);
    this.#count += 1;
  }

  /** Ends what is over by now. Call it a few times a second. */
  sweep(): void {
    const nowMs = this.#options.clock.nowMs();
    for (const [target, waiting] of this.#byTarget) {
      const sampledMs = nowMs - target.signals.ageMs();
      const isNew = sampledMs > waiting.readMs;
      waiting.readMs = Math.max(waiting.readMs, sampledMs);
      let over = isNew ? this.#finishedAt(target) : 0;
      const { releaseAfterMs } = this.#options;
      const isBlind = Number.isNaN(target.signals.running + target.signals.waiting);
      const mostMs = isBlind ? Math.min(releaseAfterMs, withoutMetricsMs) : releaseAfterMs;
      for (const entry of waiting) {
        if (entry.hasPrompt || nowMs - entry.sinceMs < entry.run.expectedPromptMs) continue;
        entry.hasPrompt = true;
        entry.run.assumePrompt();
      }
      for (let entry = waiting.first; entry; entry = waiting.first) {
        const { sinceMs } = entry;
        const isOverdue = nowMs - sinceMs >= mostMs;
        // A scrape says nothing of a request that came after it.
        if (!isOverdue && (over < 1 || sinceMs >= sampledMs)) break;
        if (!isOverdue) over -= 1;
        this.#finishFirst(waiting);
      }
      if (!waiting.first) this.#byTarget.delete(target);
    }
  }

  /** Ends all of them. */
  stop(): void {
    for (const waiting of this.#byTarget.values()) while (waiting.first) this.#finishFirst(waiting);
    this.#byTarget.clear();
  }

  /** How many of this router's requests the engine did not have any more at its last scrape. */
  #finishedAt(target: Target): number {
    const { running, waiting, inFlightAtScrape } = target.signals;
    const finished = inFlightAtScrape - (running + waiting);
    // Each router ends its own share.
    return finished > 0
      ? Math.ceil((finished * Math.min(target.load.inFlight, inFlightAtScrape)) / inFlightAtScrape)
      : 0;
  }

  #dropOldest(): void {
    let oldest: { readonly target: Target; readonly waiting: Waiting; readonly sinceMs: number } | undefined;
    for (const [target, waiting] of this.#byTarget) {
      const { sinceMs } = waiting.first!;
      if (!oldest || sinceMs < oldest.sinceMs) oldest = { target, waiting, sinceMs };
    }
    if (!oldest) return;
    this.#finishFirst(oldest.waiting);
    if (!oldest.waiting.first) this.#byTarget.delete(oldest.target);
  }

  #finishFirst(waiting: Waiting): void {
    const entry = waiting.shift();
    if (!entry) return;
    this.#count -= 1;
    entry.run.finishUnseen();
  }
}
