import { dirname, resolve } from "node:path";
import { type Logger, type Scheduler, silentLogger, systemScheduler } from "@espalier/common";
import { watchFolder } from "./watch-folder.ts";

/** Watchers miss events on network file systems, and when the folder itself is replaced. */
const pollPeriodMs = 5_000;

export interface FileWatchOptions {
  /** The file; it may be a symbolic link. */
  readonly path: string;
  readonly logger?: Logger;
  readonly scheduler?: Scheduler;
  /** How long the folder must be quiet before the file is read again, in milliseconds. */
  readonly debounceMs?: number;
}

/**
 * Calls `refresh` whenever a file may have changed. It watches the file's folder, not the file, because an atomic rename
 * gives the name to another file and Kubernetes updates a mounted ConfigMap by swapping the link `..data` beside it; and it
 * calls every 5 seconds in any case. Calls follow one another: at most one runs and one more waits.
 *
 * @param refresh must not throw; it finds out itself whether the content is another
 * @returns ends the watch; it resolves when no call is under way any more
 */
export function watchFile(options: FileWatchOptions, refresh: () => Promise<void>): () => Promise<void> {
  const { logger = silentLogger, scheduler = systemScheduler, debounceMs = 50 } = options;
  let isStopped = false;
  let calls: Promise<void> = Promise.resolve();
  let isCallWaiting = false;
  const request = (): void => {
    if (isCallWaiting) return;
    isCallWaiting = true;
    calls = calls.then(() => {
      isCallWaiting = false;
      return isStopped ? undefined : refresh();
    });
  };
  let cancelDebounce = (): void => {};
  const onChange = (): void => {
    cancelDebounce();
    cancelDebounce = scheduler.after(debounceMs, request);
  };
  const unwatch = watchFolder(dirname(resolve(options.path)), onChange, logger);
  const cancelPoll = scheduler.every(pollPeriodMs, request);
  return async () => {
    isStopped = true;
    unwatch();
    cancelDebounce();
    cancelPoll();
    await calls;
  };
}
