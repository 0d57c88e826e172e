/** Order of requests within a class; ties by arrival. */
const queueOrders = ["fcfs", "edf", "shortest_prefill"] as const;
type QueueOrder = (typeof queueOrders)[number];

/** What happens to a request whose deadline has passed, or is expected to before its turn. */
const missActions = ["reject", "demote"] as const;
type MissAction = (typeof missActions)[number];

/** Which class goes next: the highest, apart from guaranteed shares; or each in proportion to its share. */
const classRules = ["strict", "deficit"] as const;
export type ClassRule = (typeof classRules)[number];

/** How requests of one class are treated. */
export interface ClassSettings {
  readonly name: string;
  readonly order: QueueOrder;
  /**
   * Share of the tokens that a pool computes: under `strict` what the class is guaranteed while it has requests, under
   * `deficit` its weight.
   */
  readonly share: number;
  /** Default deadline of the first token, in milliseconds after arrival; undefined for none. */
  readonly targetMs: number | undefined;
  readonly onMiss: MissAction;
  /** Pending prompt tokens from which on an engine of weight 1 counts as saturated for this class. */
  readonly maxPendingTokens: number;
  /** Its work is confined to a partition of the engines while classes that do not yield have work. */
  readonly yields: boolean;
  /**
   * Max cold wait: how long a request without a deadline may be parked until an engine can take it without evicting cache
   * blocks that are expected to be reused; 0 for not at all.
   */
  readonly maxColdWaitMs: number;
}

export interface AdmissionSettings {
  /** Highest first. At least one. */
  readonly classes: readonly ClassSettings[];
  /** The class of a request that names none, or an unknown one. */
  readonly defaultClass: string;
  readonly classScheduling: ClassRule;
  /** Most queued requests of one pool. */
  readonly maxQueued: number;
  /** Most bytes of their bodies. */
  readonly maxQueuedBytes: number;
  /** Requests waiting in an engine's own queue, by its metrics, from which on it counts as saturated. */
  readonly maxWaiting: number;
  /** Share of KV blocks in use from which on an engine with requests in its own queue counts as saturated. */
  readonly maxKvUse: number;
}

/** Longest max cold wait that is accepted. */
const longestColdWaitMs = 300_000;

/** Most classes that are accepted. */
export const maxClasses = 16;

/**
 * Four steps of an engine with batches of 8,192 tokens, vLLM's default on large GPUs. In a fleet that keeps up, hardly ever
 * do all engines have this much pending at once.
 */
const usualPendingTokens = 32_768;
/** Background work needs no more pending than keeps an engine busy. */
const yieldingPendingTokens = 16_384;

const latencyClass = {
  order: "shortest_prefill",
  share: 0,
  targetMs: undefined,
  onMiss: "reject",
  yields: false,
  maxColdWaitMs: 0,
} as const;
const yieldingClass = { ...latencyClass, yields: true, maxPendingTokens: yieldingPendingTokens } as const;

export const defaultAdmissionSettings: AdmissionSettings = {
  classes: [
    { ...latencyClass, name: "interactive", maxPendingTokens: usualPendingTokens },
    { ...latencyClass, name: "default", maxPendingTokens: usualPendingTokens },
    { ...yieldingClass, name: "batch", share: 0.1 },
    { ...yieldingClass, name: "background", share: 0.02 },
  ],
  defaultClass: "default",
  classScheduling: "strict",
  maxQueued: 1_024,
  maxQueuedBytes: 256 * 1024 * 1024,
  maxWaiting: 16,
  maxKvUse: 0.95,
};

/** @throws RangeError for inconsistent settings */
export function checkSettings({ classes, defaultClass, maxQueued, maxQueuedBytes }: AdmissionSettings): void {
  if (classes.length === 0 || classes.length > maxClasses) throw new RangeError(`${classes.length} classes`);
  const names = new Set(classes.map(({ name }) => name));
  if (names.size < classes.length) throw new RangeError("two classes share a name");
  if (!names.has(defaultClass)) throw new RangeError(`unknown class ${defaultClass}`);
  if (!(maxQueued >= 0 && maxQueuedBytes >= 0)) throw new RangeError("queue limits must be 0 or more");
  const shares = classes.reduce((sum, { share }) => sum + share, 0);
  if (!(shares <= 1 + 1e-9) || classes.some(({ share }) => !(share >= 0)))
    throw new RangeError("shares must add up to at most 1");
  if (classes.some(({ maxPendingTokens }) => !(maxPendingTokens >= 1)))
    throw new RangeError("max-pending-tokens must be at least 1");
  if (classes.some(({ maxColdWaitMs }) => !(maxColdWaitMs >= 0 && maxColdWaitMs <= longestColdWaitMs)))
    throw new RangeError(`max-cold-wait must be from 0 to ${longestColdWaitMs} ms`);
}
