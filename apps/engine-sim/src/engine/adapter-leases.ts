/** How many sequences there are for each LoRA adapter, and who waits until there are none. */
export interface AdapterLeases {
  taken(adapter: string): void;
  released(adapter: string): void;
  /** Settled when no sequence is for the adapter. */
  untilFree(adapter: string): Promise<void>;
  /** All sequences are gone. */
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
    taken(adapter) {
      const lease = leases.get(adapter) ?? { count: 0, waiting: [] };
      lease.count += 1;
      leases.set(adapter, lease);
    },
    released(adapter) {
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
