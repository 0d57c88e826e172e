import type { AdapterReading } from "./metrics-page.ts";

/**
 * The state of a LoRA adapter at a target. `active`: it is loaded. `waiting`: requests for it wait there for a slot.
 * `room`: a slot is free. `none`: loading it would evict another adapter.
 */
type AdapterState = "active" | "waiting" | "room" | "none";

/** What this router knows about the LoRA adapters loaded at a target. */
export interface TargetAdapters {
  /** Undefined when nothing is known. */
  stateOf(adapter: string): AdapterState | undefined;
  /** A request for the adapter is being sent there. */
  sent(adapter: string): void;
  /**
   * Something shows that the adapter was in use there, such as blocks that it computed.
   *
   * @param ageMs how long ago; Infinity if that is not known
   */
  seen(adapter: string, ageMs: number): void;
  /** The target was asked to unload the adapter. */
  unloaded(adapter: string): void;
  /** Adapters assumed to be loaded, least recently used first.  */
  loaded(): readonly string[];
  /** The latest report from the target's metrics. */
  readonly reading: AdapterReading | undefined;
}

/** `TargetAdapters` with the operations of its owner. */
export interface OwnedTargetAdapters extends TargetAdapters {
  /**
   * Applies the target's metrics.
   *
   * @param reading undefined when they do not mention adapters
   * @param sampledMs when the scrape began, on the monotonic clock
   * @param tellsAdapters whether an engine of this dialect would report adapters after its first request for one
   */
  accept(reading: AdapterReading | undefined, sampledMs: number, tellsAdapters: boolean): void;
  /** The engine's process may have been restarted. */
  forget(): void;
}

/**
 * Slots of an engine that does not report them: the default of SGLang's `max_loras_per_batch`, whose metrics name no adapters.
 */
export const assumedAdapterSlots = 8;

/** Maximum adapters remembered per target, regardless of its slots. */
export const maxLoadedAdapters = 256;

/**
 * Tracks which adapters an engine has loaded. Its metrics name only adapters with current requests, but an adapter
 * stays loaded until its slot is needed. Then the least recently used one is evicted (vLLM's
 * `LRUCacheLoRAModelManager`). So the most recently used adapters, as many as there are slots, are the loaded ones. A
 * use is a request from this router, or one from any other client that the metrics report.
 *
 * @param nowMs the monotonic clock
 */
export function createTargetAdapters(nowMs: () => number): OwnedTargetAdapters {
  /** When each was last used. */
  const usedMs = new Map<string, number>();
  const waiting = new Set<string>();
  let reading: AdapterReading | undefined;
  /** When that scrape began. */
  let askedMs = Number.NEGATIVE_INFINITY;
  /** When the process may have been replaced last: what is older says nothing of this one. */
  let startMs = Number.NEGATIVE_INFINITY;
  /** When each was last unloaded, unless it was used since. */
  const unloadedMs = new Map<string, number>();
  /** Whether the engine reports adapters but has had none, so that all its slots are free. */
  let isUntouched = false;

  const slots = (): number => Math.min(maxLoadedAdapters, reading?.slots ?? assumedAdapterSlots);
  const use = (adapter: string, atMs: number): void => {
    usedMs.set(adapter, Math.max(atMs, usedMs.get(adapter) ?? Number.NEGATIVE_INFINITY));
    unloadedMs.delete(adapter);
  };
  const evict = (): void => {
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
      evict();
    },
    seen(adapter, ageMs) {
      const knownMs = Math.max(startMs, unloadedMs.get(adapter) ?? Number.NEGATIVE_INFINITY);
      const atMs = nowMs() - ageMs;
      // Blocks outlive an adapter that is unloaded, but not the process.
      if (waiting.has(adapter) || (ageMs === Number.POSITIVE_INFINITY ? unloadedMs.has(adapter) : atMs <= knownMs))
        return;
      use(adapter, Math.max(atMs, knownMs));
      evict();
    },
    unloaded(adapter) {
      usedMs.delete(adapter);
      unloadedMs.set(adapter, nowMs());
      if (unloadedMs.size > maxLoadedAdapters) unloadedMs.delete(unloadedMs.keys().next().value!);
    },
    accept(next, sampledMs, tellsAdapters) {
      // An adapter that waited at the last scrape and no longer waits has had a slot in between.
      for (const adapter of waiting) if (!next?.waiting.includes(adapter)) use(adapter, askedMs);
      reading = next;
      askedMs = sampledMs;
      isUntouched = tellsAdapters && !next;
      waiting.clear();
      for (const adapter of next?.running ?? []) use(adapter, sampledMs);
      for (const adapter of next?.waiting ?? []) {
        // A request sent after the scrape began is not on the page.
        if (next?.running.includes(adapter) || (usedMs.get(adapter) ?? Number.NEGATIVE_INFINITY) > sampledMs) continue;
        usedMs.delete(adapter);
        waiting.add(adapter);
      }
      evict();
    },
    forget() {
      startMs = nowMs();
      unloadedMs.clear();
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
