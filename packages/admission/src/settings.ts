/** In which order the requests of one class go; ties by arrival. */
export const queueOrders = ["fcfs", "edf", "shortest_prefill"] as const;
export type QueueOrder = (typeof queueOrders)[number];

/** What becomes of a request whose deadline has passed, or will have when its turn comes. */
export const missActions = ["reject", "demote"] as const;
export type MissAction = (typeof missActions)[number];

/** Which class goes next: the highest, but for guaranteed shares; or each by its share. */
export const classRules = ["strict", "deficit"] as const;
export type ClassRule = (typeof classRules)[number];

/** How requests of one class are treated. */
export interface ClassSettings {
  readonly name: string;
  readonly order: QueueOrder;
  /**
   * Part of the tokens that a pool computes: what the class gets at least, where it wants it, under `strict`; and its
   * weight under `deficit`.
   */
  readonly share: number;
  /** The first token is due so long after arrival, where the request does not say; undefined for no deadline. */
  readonly targetMs: number | undefined;
  readonly onMiss: MissAction;
  /** Prompt tokens that wait at an engine of weight 1 from which on it gets no more of this class. */
  readonly maxPendingTokens: number;
  /** Its work keeps to some of the engines while a class that does not yield is there. */
  readonly yields: boolean;
  /**
   * How long a request without a deadline may wait for an engine whose memory it fits in without driving out what others
   * are expected to come back for; 0 for not at all.
   */
  readonly patienceMs: number;
}

export interface AdmissionSettings {
  /** The highest first. At least one. */
  readonly classes: readonly ClassSettings[];
  /** The class of a request that names none, or one that is not known. */
  readonly defaultClass: string;
  readonly between: ClassRule;
  /** Requests that wait for one pool at most. */
  readonly maxQueued: number;
  /** And bytes of their bodies. */
  readonly maxQueuedBytes: number;
  /** Requests in an engine's own queue, by its metrics, from which on it gets no more. */
  readonly maxWaiting: number;
  /** Share of its KV blocks in use from which on an engine with a queue of its own gets no more. */
  readonly maxKvUse: number;
}

/** Longer patience is refused: what has waited that long goes, whatever it drives out. */
const maxPatienceMs = 300_000;

/** More classes are refused. */
export const maxClasses = 16;

/**
 * Four steps of an engine whose batch has 8,192 tokens, vLLM's default on large GPUs: a fleet that keeps up has less
 * waiting at every engine at once hardly ever.
 */
const usualPendingTokens = 32_768;
/** Work that nobody waits for needs no more than keeps an engine busy. */
const yieldingPendingTokens = 16_384;

const latencyClass = {
  order: "fcfs",
  share: 0,
  targetMs: undefined,
  onMiss: "reject",
  yields: false,
  patienceMs: 0,
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
  between: "strict",
  maxQueued: 1_024,
  maxQueuedBytes: 256 * 1024 * 1024,
  maxWaiting: 16,
  maxKvUse: 0.95,
};

/** @throws RangeError for settings that make no sense together */
export function checkSettings({ classes, defaultClass, maxQueued, maxQueuedBytes }: AdmissionSettings): void {
  if (classes.length === 0 || classes.length > maxClasses) throw new RangeError(`${classes.length} classes`);
  const names = new Set(classes.map(({ name }) => name));
  if (names.size < classes.length) throw new RangeError("two classes have one name");
  if (!names.has(defaultClass)) throw new RangeError(`there is no class ${defaultClass}`);
  if (!(maxQueued >= 0 && maxQueuedBytes >= 0)) throw new RangeError("a queue cannot hold less than nothing");
  const shares = classes.reduce((sum, { share }) => sum + share, 0);
  if (!(shares <= 1 + 1e-9) || classes.some(({ share }) => !(share >= 0)))
    throw new RangeError("shares must add up to 1 at most");
  if (classes.some(({ maxPendingTokens }) => !(maxPendingTokens >= 1)))
    throw new RangeError("an engine must take a token");
  if (classes.some(({ patienceMs }) => !(patienceMs >= 0 && patienceMs <= maxPatienceMs)))
    throw new RangeError(`patience must be from 0 to ${maxPatienceMs} ms`);
}
