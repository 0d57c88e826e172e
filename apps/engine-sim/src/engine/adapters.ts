/** LoRA adapters of an engine, loaded ones and others. */
export const maxAdapters = 64;

/** The LoRA adapters that an engine serves. */
export interface AdapterRegistry {
  /** In order of loading. */
  readonly names: readonly string[];
  /** @returns false when there are `maxAdapters` already */
  add(name: string): boolean;
  /** @returns whether there was one with this name */
  remove(name: string): boolean;
  /** Restores the initial ones. */
  reset(): void;
}

/** @param initial those with which the engine starts */
export function createAdapterRegistry(initial: readonly string[]): AdapterRegistry {
  let names = initial;
  return {
    get names() {
      return names;
    },
    add(name) {
      if (names.length >= maxAdapters) return false;
      names = [...names, name];
      return true;
    },
    remove(name) {
      const kept = names.filter((known) => known !== name);
      const isKnown = kept.length < names.length;
      names = kept;
      return isKnown;
    },
    reset() {
      names = initial;
    },
  };
}

/** Reference counts of the LoRA adapters in use. */
export interface AdapterLeases {
  acquire(adapter: string): void;
  release(adapter: string): void;
  /** Resolves when no sequence uses the adapter. */
  untilFree(adapter: string): Promise<void>;
  /** The engine restarts: all sequences are gone. */
  clear(): void;
}

interface Lease {
  count: number;
  readonly waiting: (() => void)[];
}

export function createAdapterLeases(): AdapterLeases {
  const leases = new Map<string, Lease>();
  const end = (adapter: string, { waiting }: Lease): void => {
    leases.delete(adapter);
    for (const settle of waiting) settle();
  };
  return {
    acquire(adapter) {
      const lease = leases.get(adapter) ?? { count: 0, waiting: [] };
      lease.count += 1;
      leases.set(adapter, lease);
    },
    release(adapter) {
      const lease = leases.get(adapter);
      if (!lease) return;
      lease.count -= 1;
      if (lease.count === 0) end(adapter, lease);
    },
    untilFree(adapter) {
      const lease = leases.get(adapter);
      return lease ? new Promise((resolve) => lease.waiting.push(resolve)) : Promise.resolve();
    },
    clear() {
      for (const [adapter, lease] of [...leases]) end(adapter, lease);
    },
  };
}

/** The LoRA adapters with requests at one time. */
export interface LoraSample {
  /** Names with commas between, as vLLM's label has them. */
  readonly running: string;
  readonly waiting: string;
  /** Unix seconds. */
  readonly seenS: number;
}

/** The series of `vllm:lora_requests_info`: one for each combination, with the time it was seen last. */
export interface LoraSeries {
  add(sample: LoraSample): void;
  /** Oldest first. */
  samples(): readonly LoraSample[];
}

/** Combinations kept; the least recently seen is evicted. A real engine keeps all. */
const maxLoraSamples = 32;

export function createLoraSeries(): LoraSeries {
  const series = new Map<string, LoraSample>();
  return {
    add(sample) {
      const key = `${sample.running}\n${sample.waiting}`;
      series.delete(key);
      series.set(key, sample);
      if (series.size > maxLoraSamples) series.delete(series.keys().next().value as string);
    },
    samples: () => [...series.values()],
  };
}
