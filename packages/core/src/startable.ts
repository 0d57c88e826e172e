/** Something with a running state. `start` and `stop` are each called at most once, in that order. */
export interface Startable {
  start(): Promise<void>;
  /** Releases every socket, timer and watcher. Safe to call when `start` failed half-way. */
  stop(): Promise<void>;
}

/**
 * Joins parts into one: started in order, stopped in reverse. When a part fails to start, the ones before it are
 * stopped and the error is thrown.
 */
export function startTogether(parts: readonly Startable[]): Startable {
  const running: Startable[] = [];
  const stop = async (): Promise<void> => {
    for (const part of running.splice(0).reverse()) await part.stop();
  };
  return {
    async start() {
      try {
        for (const part of parts) {
          running.push(part);
          await part.start();
        }
      } catch (error) {
        await stop();
        throw error;
      }
    },
    stop,
  };
}
