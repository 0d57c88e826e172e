import { createHash } from "node:crypto";
import { constants, watch } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { EspalierError, type Logger, type Scheduler, silentLogger, systemScheduler } from "@espalier/core";

/** Enough for about 80,000 engines with generous labels. A larger file is a mistake, and parsing it would stall requests. */
const usualMaxBytes = 16 * 1024 * 1024;

export interface FileContent {
  readonly bytes: Buffer;
  /** SHA-256 of `bytes`, in hexadecimal. */
  readonly digest: string;
}

/**
 * Reads a regular file, up to the size limit even if the file grows during the read.
 *
 * @param maxBytes 16 MiB by default
 * @throws EspalierError `config_unreadable`; its message is the same for the same cause, so it can be compared
 */
export async function readBoundedFile(path: string, maxBytes = usualMaxBytes): Promise<FileContent> {
  try {
    // Without O_NONBLOCK, opening a pipe would block until there is a writer.
    const handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      return await readContent(handle, path, maxBytes);
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (error instanceof EspalierError) throw error;
    const reason = (error as NodeJS.ErrnoException).code ?? String(error);
    throw new EspalierError("config_unreadable", `${path} cannot be read: ${reason}`, { cause: error });
  }
}

async function readContent(handle: FileHandle, path: string, maxBytes: number): Promise<FileContent> {
  if (!(await handle.stat()).isFile()) throw new EspalierError("config_unreadable", `${path} is not a regular file`);
  const hash = createHash("sha256");
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  // `end` is inclusive, so a file that is too large gives one byte more than the limit.
  for await (const chunk of handle.createReadStream({ start: 0, end: maxBytes, autoClose: false })) {
    sizeBytes += chunk.length;
    if (sizeBytes > maxBytes) {
      throw new EspalierError("config_unreadable", `${path} is larger than ${maxBytes} bytes`);
    }
    hash.update(chunk);
    chunks.push(chunk);
  }
  return { bytes: Buffer.concat(chunks, sizeBytes), digest: hash.digest("hex") };
}

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
 * Calls `refresh` whenever a file may have changed. It watches the file's folder instead of the file: an atomic rename
 * gives the name to another file, and Kubernetes updates a mounted ConfigMap by swapping the link `..data` in the same
 * folder. It also calls every 5 seconds in any case. Calls do not overlap: at most one runs and one more waits.
 *
 * @param refresh must not throw; it checks itself whether the content has changed
 * @returns ends the watch; resolves when no call is in progress any more
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

/**
 * Calls `onChange` whenever an entry of the folder is written, created, removed or renamed. When the folder cannot be
 * watched, which includes running out of inotify watches, that is logged and `onChange` stays silent.
 *
 * @returns a function that ends the watch; calling it twice does nothing
 */
function watchFolder(path: string, onChange: () => void, logger: Logger): () => void {
  const warn = (error: unknown): void => logger.warn("folder watch failed; polling for changes", { path, error });
  try {
    const watcher = watch(path, { persistent: false }, onChange);
    watcher.on("error", (error) => {
      warn(error);
      watcher.close();
    });
    return () => watcher.close();
  } catch (error) {
    warn(error);
    return () => {};
  }
}
