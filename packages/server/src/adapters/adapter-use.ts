import type { Cancel, Clock, Random, Scheduler } from "@espalier/core";
import type { EngineRecord } from "@espalier/engines";
import type { Bindings } from "@espalier/shared-tree";

/** Shortest interval between announcements that an adapter is in use at an engine. */
export const announceEveryMs = 2_000;
/** An announced adapter counts as in use for this long: three announcement intervals. */
export const inUseTtlMs = 3 * announceEveryMs;
/** How long routers remember the last use of an adapter. */
const rememberedMs = 600_000;
const never = Number.NEGATIVE_INFINITY;

/** Which LoRA adapters are in use at which engine, and when idle ones were last used. */
export interface AdapterUse {
  /**
   * Begins a request for an adapter.
   *
   * @returns call it when the request ends
   */
  begin(engine: EngineRecord, adapter: string): () => void;
  /** Whether this router, another one, or the engine's metrics report a request for it. */
  isInUse(engine: EngineRecord, adapter: string): boolean;
  /** When any router last used it, in milliseconds of the monotonic clock; -Infinity when unknown. */
  lastUsedMs(engine: EngineRecord, adapter: string): number;
  /** Milliseconds since then, a second old at most; Infinity when unknown. Read for every candidate of a request. */
  ageMs(engine: EngineRecord, adapter: string): number;
  /** Whether a router announced its use there and it was not unloaded since. */
  isKnownInUse(engine: EngineRecord, adapter: string): boolean;
  /** The engine unloaded the adapter. */
  unloaded(engine: EngineRecord, adapter: string): void;
}

export interface AdapterUseOptions {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  /** Bindings of all routers; undefined when this router shares nothing. */
  readonly shared: Pick<Bindings, "get" | "set" | "leftMs" | "forget"> | undefined;
}

/** This router's use of one adapter at one engine. */
interface Use {
  readonly key: string;
  requests: number;
  /** When the last request began or ended. */
  lastMs: number;
  announcedMs: number;
  /** When any router last used it, as far as was known at `lookedMs`. */
  knownMs: number;
  lookedMs: number;
}

/** How long `ageMs` does not look for announcements of others again. */
const lookEveryMs = 1_000;

/**
 * A shared binding from engine and adapter to the last router that used it announces the use; it is renewed while
 * requests run. A router's own announcement counts as another router's use until any other user would have overwritten
 * it.
 */
export function createAdapterUse({ clock, scheduler, random, shared }: AdapterUseOptions): AdapterUse {
  const self = random.integer(2 ** 32).toString(36);
  const uses = new WeakMap<EngineRecord, Map<string, Use>>();
  /** Adapters in use, announced periodically. */
  const busy = new Set<Use>();
  let timer: Cancel | undefined;

  const useOf = (engine: EngineRecord, adapter: string): Use => {
    const known = uses.get(engine) ?? new Map<string, Use>();
    uses.set(engine, known);
    const use = known.get(adapter) ?? {
      ...{ key: keyOf(engine, adapter), requests: 0, lastMs: never, announcedMs: never },
      ...{ knownMs: never, lookedMs: never },
    };
    known.set(adapter, use);
    return use;
  };
  const announce = (use: Use): void => {
    if (!shared || clock.nowMs() - use.announcedMs < announceEveryMs) return;
    use.announcedMs = clock.nowMs();
    shared.set(use.key, self, rememberedMs);
  };
  const announceLater = (): void => {
    if (!shared || timer) return;
    timer = scheduler.after(announceEveryMs, () => {
      timer = undefined;
      for (const use of busy) announce(use);
      if (busy.size > 0) announceLater();
    });
  };
  /** Milliseconds since the last announcement of its use; Infinity for none. */
  const quietMs = ({ key }: Use): number => {
    const left = shared?.leftMs(key) ?? 0;
    return left > 0 ? rememberedMs - left : Number.POSITIVE_INFINITY;
  };
  const lastUsedMs = (use: Use): number => Math.max(use.lastMs, clock.nowMs() - quietMs(use));
  return {
    begin(engine, adapter) {
      const use = useOf(engine, adapter);
      use.requests += 1;
      use.lastMs = clock.nowMs();
      busy.add(use);
      announce(use);
      announceLater();
      let isOver = false;
      return () => {
        if (isOver) return;
        isOver = true;
        use.requests -= 1;
        use.lastMs = clock.nowMs();
        if (use.requests === 0) busy.delete(use);
      };
    },
    isInUse(engine, adapter) {
      const use = useOf(engine, adapter);
      if (use.requests > 0) return true;
      const isOwnAnnouncement = shared?.get(use.key) === self;
      if (quietMs(use) < (isOwnAnnouncement ? 1.5 * announceEveryMs : inUseTtlMs)) return true;
      // Metrics from before the last request ended here may still count that request.
      return isNamedBy(engine, adapter, clock.nowMs() - use.lastMs);
    },
    lastUsedMs: (engine, adapter) => lastUsedMs(useOf(engine, adapter)),
    ageMs(engine, adapter) {
      const use = useOf(engine, adapter);
      const nowMs = clock.nowMs();
      if (nowMs - use.lookedMs >= lookEveryMs) {
        use.lookedMs = nowMs;
        use.knownMs = lastUsedMs(use);
      }
      return nowMs - use.knownMs;
    },
    isKnownInUse: (engine, adapter) => (shared?.leftMs(keyOf(engine, adapter)) ?? 0) > 0,
    unloaded(engine, adapter) {
      const use = useOf(engine, adapter);
      use.announcedMs = never;
      use.knownMs = never;
      shared?.forget(use.key);
    },
  };
}

/** Whether metrics younger than `maxAgeMs` name requests for an adapter. */
function isNamedBy({ targets }: EngineRecord, adapter: string, maxAgeMs: number): boolean {
  return targets.some(({ adapters: { reading }, signals }) => {
    if (signals.ageMs() >= maxAgeMs) return false;
    return reading?.running.includes(adapter) || reading?.waiting.includes(adapter);
  });
}

/** The prefix is unique among bindings. */
function keyOf({ id }: EngineRecord, adapter: string): string {
  return `adapter\n${id}\n${adapter}`;
}
