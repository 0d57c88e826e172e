import { setMaxListeners } from "node:events";

/** A signal that aborts on the first Ctrl-C or SIGTERM. The second one ends the process at once. */
export function abortOnSignal(): AbortSignal {
  const controller = new AbortController();
  // Every request under way listens to it.
  setMaxListeners(0, controller.signal);
  const stop = (): void => {
    if (controller.signal.aborted) process.exit(1);
    controller.abort();
  };
  process.on("SIGINT", stop);
  process.on("SIGTERM", stop);
  return controller.signal;
}
