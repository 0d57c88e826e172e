/** More waiting than this means that something is wrong: each feed waits at most once. */
const maxWaiting = 16_384;

/** Bounds how many replays run at once, over all feeds: each makes an engine send up to its whole history. */
export interface ReplayGate {
  /**
   * Calls `enter` once there is room, maybe at once.
   *
   * @returns gives the place back, or gives up waiting for one; undefined when too many wait
   */
  acquire(enter: () => void): (() => void) | undefined;
}

/** @param limit replays at once */
export function createReplayGate(limit = 8): ReplayGate {
  const waiting = new Set<() => void>();
  let running = 0;

  const admit = (): void => {
    for (const enter of waiting) {
      if (running >= limit) return;
      waiting.delete(enter);
      running += 1;
      enter();
    }
  };
  return {
    acquire(enter) {
      if (waiting.size >= maxWaiting) return undefined;
      let isOver = false;
      // A closure of its own per call: two callers may pass the same function.
      const entry = (): void => enter();
      waiting.add(entry);
      admit();
      return () => {
        if (isOver) return;
        isOver = true;
        if (waiting.delete(entry)) return;
        running -= 1;
        admit();
      };
    },
  };
}
