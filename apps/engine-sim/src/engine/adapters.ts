/** LoRA adapters of an engine, loaded ones and others. */
export const maxAdapters = 64;

/** The LoRA adapters that an engine serves. */
export type AdapterRegistry = ReturnType<typeof createAdapterRegistry>;

/** @param initial those with which the engine starts */
export function createAdapterRegistry(initial: readonly string[]) {
  let names = initial;
  return {
    /** In order of loading. */
    get names() {
      return names;
    },
    /** @returns false when there are `maxAdapters` already */
    add(name: string): boolean {
      if (names.length >= maxAdapters) return false;
      names = [...names, name];
      return true;
    },
    /** @returns whether there was one with this name */
    remove(name: string): boolean {
      const kept = names.filter((known) => known !== name);
      const isKnown = kept.length < names.length;
      names = kept;
      return isKnown;
    },
    /** Restores the initial ones. */
    reset(): void {
      names = initial;
    },
  };
}

/** Reference counts of the LoRA adapters in use. */
export type AdapterLeases = ReturnType<typeof createAdapterLeases>;

interface Lease {
  count: number;
  readonly waiting: (() => void)[];
}

export function createAdapterLeases() {
  const leases = new Map<string, Lease>();
  const end = (adapter: string, { waiting }: Lease): void => {
    leases.delete(adapter);
    for (const settle of waiting) settle();
  };
  return {
    acquire(adapter: string): void {
      const lease = leases.get(adapter) ?? { count: 0, waiting: [] };
      lease.count += 1;
      leases.set(adapter, lease);
    },
    release(adapter: string): void {
      const lease = leases.get(adapter);
      if (!lease) return;
      lease.count -= 1;
      if (lease.count === 0) end(adapter, lease);
    },
    /** Resolves when no sequence uses the adapter. */
    untilFree(adapter: string): Promise<void> {
      const lease = leases.get(adapter);
      return lease ? new Promise((resolve) => lease.waiting.push(resolve)) : Promise.resolve();
    },
    /** The engine restarts: all sequences are gone. */
    clear(): void {
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
export type LoraSeries = ReturnType<typeof createLoraSeries>;

/** Combinations kept; the least recently seen is evicted. A real engine keeps all. */
const maxLoraSamples = 32;

export function createLoraSeries() {
  const series = new Map<string, LoraSample>();
  return {
    add(sample: LoraSample): void {
      const key = `${sample.running}\n${sample.waiting}`;
      series.delete(key);
      series.set(key, sample);
      if (series.size > maxLoraSamples) series.delete(series.keys().next().value as string);
    },
    /** Oldest first. */
    samples: (): readonly LoraSample[] => [...series.values()],
  };
}
