/** What holds a place among the running requests, by the LoRA adapter that it is for. */
export interface AdapterSlots {
  /** Whether a request for an adapter may run now. One without an adapter always may. */
  admits(adapter: string | undefined): boolean;
  /**
   * A request begins to run. `admits` must hold.
   *
   * @returns whether its adapter has to be loaded for that
   */
  enter(adapter: string | undefined): boolean;
  /** A request runs no more; its adapter stays loaded. */
  leave(adapter: string | undefined): void;
}

/**
 * The adapters that an engine holds in its GPU. Requests for at most `slots` of them run at once (vLLM's `max_loras` in
 * `v1/core/sched/scheduler.py`, SGLang's `max_loras_per_batch`). An adapter that no running request is for stays where it
 * is until its slot is needed; then the one that was used longest ago gives way (`LRUCacheLoRAModelManager`).
 *
 * @param slots at least 1; Infinity for an engine that never gives one up
 */
export function createAdapterSlots(slots: number): AdapterSlots {
  /** Running requests by adapter. */
  const running = new Map<string, number>();
  /** Loaded adapters that nobody runs for, the one used longest ago first. */
  const idle = new Set<string>();
  return {
    admits: (adapter) => adapter === undefined || running.has(adapter) || running.size < slots,
    enter(adapter) {
      if (adapter === undefined) return false;
      const users = running.get(adapter) ?? 0;
      running.set(adapter, users + 1);
      if (users > 0 || idle.delete(adapter)) return false;
      if (running.size + idle.size > slots) {
        for (const oldest of idle) {
          idle.delete(oldest);
          break;
        }
      }
      return true;
    },
    leave(adapter) {
      if (adapter === undefined) return;
      const users = running.get(adapter) ?? 0;
      if (users > 1) {
        running.set(adapter, users - 1);
        return;
      }
      running.delete(adapter);
      idle.add(adapter);
    },
  };
}
