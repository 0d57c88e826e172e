import type { AdapterReading } from "./metrics-page.ts";

/**
 * How a target stands to a LoRA adapter. `active`: it has it loaded. `waiting`: requests for it wait there for a slot.
 * `room`: it has a slot that nothing is in. `none`: it would have to give up another one first.
 */
export type AdapterState = "active" | "waiting" | "room" | "none";

/** What this router knows of the LoRA adapters that a target has loaded. */
export interface TargetAdapters {
  /** Undefined when nothing is known. */
  stateOf(adapter: string): AdapterState | undefined;
  /** A request for the adapter is being sent there. */
  sent(adapter: string): void;
  /** The target was told to give the adapter up. */
  unloaded(adapter: string): void;
  /** Adapters thought to be loaded, the one used longest ago first. */
  loaded(): readonly string[];
  /** What the target's metrics said last. */
  readonly reading: AdapterReading | undefined;
}

/** The same with the means to change it. */
export interface OwnedTargetAdapters extends TargetAdapters {
  /**
   * Takes in what the target's metrics say.
   *
   * @param reading undefined where they say nothing of adapters
   * @param sampledMs when they were asked, on the monotonic clock
   * @param tellsAdapters whether an engine of this dialect would say so, had it ever had a request for an adapter
   */
  accept(reading: AdapterReading | undefined, sampledMs: number, tellsAdapters: boolean): void;
  /** The target may be another process now. */
  forget(): void;
}

/**
 * Slots of an engine that does not tell: the default of SGLang's `max_loras_per_batch`, whose metrics name no adapters.
 */
export const assumedAdapterSlots = 8;

/** Adapters of one target that are remembered, however many slots it has. */
export const maxLoadedAdapters = 256;

/**
 * Follows what an engine has loaded. Its metrics name only what requests are for at the moment; but an adapter stays
 * loaded until its slot is needed, and then the one used longest ago goes (vLLM's `LRUCacheLoRAModelManager`). So the
 * adapters used last, as many as there are slots, are those that are there. Uses are requests of this router, at once,
 * and everybody's, as the metrics name them.
 *
 * @param nowMs the monotonic clock
 */
export function createTargetAdapters(nowMs: () => number): OwnedTargetAdapters {
  /** When each was last used. */
  const usedMs = new Map<string, number>();
  const waiting = new Set<string>();
  let reading: AdapterReading | undefined;
  /** When that was asked for. */
  let askedMs = Number.NEGATIVE_INFINITY;
  /** Whether the engine would have told of adapters, had it had any: then all its slots are empty. */
  let isUntouched = false;

  const slots = (): number => Math.min(maxLoadedAdapters, reading?.slots ?? assumedAdapterSlots);
  const use = (adapter: string, atMs: number): void => {
    usedMs.set(adapter, Math.max(atMs, usedMs.get(adapter) ?? Number.NEGATIVE_INFINITY));
  };
  const giveUp = (): void => {
    while (usedMs.size > slots()) usedMs.delete(oldestOf(usedMs));
  };
  return {
    get reading() {
      return reading;
    },
    loaded: () => [...usedMs].sort(([, one], [, other]) => one - other).map(([name]) => name),
    stateOf(adapter) {
      if (usedMs.has(adapter)) return "active";
      if (waiting.has(adapter)) return "waiting";
      if (!reading && !isUntouched) return undefined;
      return usedMs.size + waiting.size < slots() ? "room" : "none";
    },
    sent(adapter) {
      use(adapter, nowMs());
      waiting.delete(adapter);
      giveUp();
    },
    unloaded(adapter) {
      usedMs.delete(adapter);
    },
    accept(next, sampledMs, tellsAdapters) {
      // What waited when it was last asked, and does so no more, has had its slot since.
      for (const adapter of waiting) if (!next?.waiting.includes(adapter)) use(adapter, askedMs);
      reading = next;
      askedMs = sampledMs;
      isUntouched = tellsAdapters && !next;
      waiting.clear();
      for (const adapter of next?.running ?? []) use(adapter, sampledMs);
      for (const adapter of next?.waiting ?? []) {
        // What was sent after the page was asked for is not on it.
        if (next?.running.includes(adapter) || (usedMs.get(adapter) ?? Number.NEGATIVE_INFINITY) > sampledMs) continue;
        usedMs.delete(adapter);
        waiting.add(adapter);
      }
      giveUp();
    },
    forget() {
      usedMs.clear();
      waiting.clear();
      reading = undefined;
      isUntouched = false;
    },
  };
}

function oldestOf(usedMs: ReadonlyMap<string, number>): string {
  let oldest = "";
  let oldestMs = Number.POSITIVE_INFINITY;
  for (const [name, atMs] of usedMs) {
    if (atMs >= oldestMs) continue;
    oldest = name;
    oldestMs = atMs;
  }
  return oldest;
}
