import type { Cancel, Clock, Random, Scheduler } from "@espalier/common";
import type { Bindings } from "@espalier/replication";
import type { EngineRecord } from "@espalier/workers";

/** How often other routers are told, at most, that an adapter is in use at an engine. */
export const tellEveryMs = 2_000;
/** An adapter that another router said to be in use is believed to be for so long: three times what is between two words. */
export const heldMs = 3 * tellEveryMs;
/** How long others remember when it was last used. */
const rememberedMs = 600_000;
const never = Number.NEGATIVE_INFINITY;

/** Which LoRA adapters are in use at which engine, and since when those that are not. */
export interface AdapterUse {
  /**
   * A request for an adapter is on its way to an engine.
   *
   * @returns to be called when it has ended
   */
  begin(engine: EngineRecord, adapter: string): () => void;
  /** Whether this router, another one or the engine itself says that there is a request for it. */
  isInUse(engine: EngineRecord, adapter: string): boolean;
  /** When anybody last began to use it, or was seen to, on the monotonic clock; -Infinity when that is not known. */
  lastUsedMs(engine: EngineRecord, adapter: string): number;
  /** Whether any router was heard to use it there, and none to have it unloaded since. */
  isHeardOf(engine: EngineRecord, adapter: string): boolean;
  /** The engine has it no more. */
  unloaded(engine: EngineRecord, adapter: string): void;
}

export interface AdapterUseOptions {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  /** What all routers know; undefined when nothing is shared. */
  readonly shared: Pick<Bindings, "get" | "set" | "leftMs" | "forget"> | undefined;
}

/** One adapter at one engine, as far as this router uses it. */
interface Use {
  readonly key: string;
  requests: number;
  /** When the last request began or ended. */
  lastMs: number;
  toldMs: number;
}

/**
 * Other routers hear of uses by a binding of engine and adapter to whoever wrote last, written again while requests run. A
 * router that has written it itself takes it for the use of others until any of them would have written over it.
 */
export function createAdapterUse({ clock, scheduler, random, shared }: AdapterUseOptions): AdapterUse {
  const self = random.integer(2 ** 32).toString(36);
  const uses = new WeakMap<EngineRecord, Map<string, Use>>();
  /** Those with requests, which are told again and again. */
  const busy = new Set<Use>();
  let timer: Cancel | undefined;

  const useOf = (engine: EngineRecord, adapter: string): Use => {
    const known = uses.get(engine) ?? new Map<string, Use>();
    uses.set(engine, known);
    const use = known.get(adapter) ?? { key: keyOf(engine, adapter), requests: 0, lastMs: never, toldMs: never };
    known.set(adapter, use);
    return use;
  };
  const tell = (use: Use): void => {
    if (!shared || clock.nowMs() - use.toldMs < tellEveryMs) return;
    use.toldMs = clock.nowMs();
    shared.set(use.key, self, rememberedMs);
  };
  const tellLater = (): void => {
    if (!shared || timer) return;
    timer = scheduler.after(tellEveryMs, () => {
      timer = undefined;
      for (const use of busy) tell(use);
      if (busy.size > 0) tellLater();
    });
  };
  /** Since when others were not heard to use it; Infinity for never. */
  const quietMs = ({ key }: Use): number => {
    const left = shared?.leftMs(key) ?? 0;
    return left > 0 ? rememberedMs - left : Number.POSITIVE_INFINITY;
  };
  return {
    begin(engine, adapter) {
      const use = useOf(engine, adapter);
      use.requests += 1;
      use.lastMs = clock.nowMs();
      busy.add(use);
      tell(use);
      tellLater();
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
      const isOwnWord = shared?.get(use.key) === self;
      if (quietMs(use) < (isOwnWord ? 1.5 * tellEveryMs : heldMs)) return true;
      // What was read before the last request ended here may have been that request.
      return isNamedBy(engine, adapter, clock.nowMs() - use.lastMs);
    },
    lastUsedMs(engine, adapter) {
      const use = useOf(engine, adapter);
      return Math.max(use.lastMs, clock.nowMs() - quietMs(use));
    },
    isHeardOf: (engine, adapter) => (shared?.leftMs(keyOf(engine, adapter)) ?? 0) > 0,
    unloaded(engine, adapter) {
      const use = useOf(engine, adapter);
      use.toldMs = never;
      shared?.forget(use.key);
    },
  };
}

/** Whether metrics that are younger than so many milliseconds name requests for an adapter. */
function isNamedBy({ targets }: EngineRecord, adapter: string, maxAgeMs: number): boolean {
  return targets.some(({ adapters: { reading }, signals }) => {
    if (signals.ageMs() >= maxAgeMs) return false;
    return reading?.running.includes(adapter) || reading?.waiting.includes(adapter);
  });
}

/** Nothing else that is bound begins like this. */
function keyOf({ id }: EngineRecord, adapter: string): string {
  return `adapter\n${id}\n${adapter}`;
}
