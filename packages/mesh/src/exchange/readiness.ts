import type { Clock } from "@espalier/common";

/** Longest wait for what peers have; a router that has come so far without it goes on without. */
const defaultMaxWaitMs = 30_000;

export interface ReadinessOptions {
  readonly clock: Clock;
  /** How long peers may take to be found, in milliseconds. */
  readonly graceMs: number;
  /** How long the wait may last in all, in milliseconds. */
  readonly maxWaitMs?: number;
  /** What is said to be waited for until then; `peers` when left out. */
  readonly lookingFor?: string;
  /** Whether all known addresses were tried and all handshakes answered. */
  hasTriedAll(): boolean;
  /** What is waited for once peers are known, by name. */
  readonly conditions: Readonly<Record<string, () => boolean>>;
}

/** Says what a router that has just started waits for. Once it waits for nothing, it never does again. */
export class Readiness {
  readonly #options: ReadinessOptions;
  /** Undefined before the start, when all the time is still to come. */
  #startMs: number | undefined;
  #isReady = false;

  constructor(options: ReadinessOptions) {
    this.#options = options;
  }

  start(): void {
    this.#startMs = this.#options.clock.nowMs();
  }

  /** Whether peers may still be found that nobody knows of yet. */
  get isLooking(): boolean {
    return this.#elapsedMs < this.#options.graceMs && !this.#options.hasTriedAll();
  }

  get waitingFor(): readonly string[] {
    if (this.#isReady || this.#elapsedMs >= (this.#options.maxWaitMs ?? defaultMaxWaitMs)) return this.#ready();
    if (this.isLooking) return [this.#options.lookingFor ?? "peers"];
    const waiting = Object.entries(this.#options.conditions).filter(([, isMet]) => !isMet());
    return waiting.length === 0 ? this.#ready() : waiting.map(([name]) => name);
  }

  get #elapsedMs(): number {
    return this.#startMs === undefined ? 0 : this.#options.clock.nowMs() - this.#startMs;
  }

  #ready(): readonly string[] {
    this.#isReady = true;
    return [];
  }
}
