import { dirname, resolve } from "node:path";
import {
  asEspalierError,
  type EngineSpec,
  EspalierError,
  type Logger,
  type Scheduler,
  silentLogger,
  systemScheduler,
} from "@espalier/common";
import { type FileContent, readBoundedFile } from "./bounded-file.ts";
import type { EngineSource, SourceObserver } from "./engine-source.ts";
import { watchFolder } from "./watch-folder.ts";

/** Watchers miss events on network file systems, and when the folder itself is replaced. */
const pollPeriodMs = 5_000;

export interface FileSourceOptions {
  /** The file; it may be a symbolic link. */
  readonly path: string;
  /** Makes the list from the file's text. What it throws is reported as the file's fault. */
  readonly parse: (text: string, path: string) => readonly EngineSpec[];
  readonly logger?: Logger;
  readonly scheduler?: Scheduler;
  /** How long the folder must be quiet before the file is read again, in milliseconds. */
  readonly debounceMs?: number;
}

/**
 * A source that follows a file. It watches the file's folder, not the file, because an atomic rename gives the name to
 * another file and Kubernetes updates a mounted ConfigMap by swapping the link `..data` beside it. Every 5 seconds it
 * reads the file anyway. A change that cannot be read or parsed is reported once and leaves the last good list.
 *
 * `start` throws EspalierError `config_unreadable` when the file is absent, unreadable, not a regular file or larger
 * than 16 MiB, `config_invalid` when it is not UTF-8, and what `parse` throws.
 */
export function createFileSource(options: FileSourceOptions): EngineSource {
  const { parse, logger = silentLogger, scheduler = systemScheduler, debounceMs = 50 } = options;
  const path = resolve(options.path);
  const releases: (() => void)[] = [];
  let isStopped = false;
  /** Reads follow one another; at most one runs and one more waits. */
  let reads: Promise<void> = Promise.resolve();
  let isReadWaiting = false;

  const release = (): void => {
    isStopped = true;
    for (const undo of releases.splice(0)) undo();
  };

  const follow = (refresh: () => Promise<void>): void => {
    const requestRead = (): void => {
      if (isReadWaiting) return;
      isReadWaiting = true;
      reads = reads.then(() => {
        isReadWaiting = false;
        return refresh();
      });
    };
    let cancelDebounce = (): void => {};
    const onChange = (): void => {
      cancelDebounce();
      cancelDebounce = scheduler.after(debounceMs, requestRead);
    };
    releases.push(watchFolder(dirname(path), onChange, logger));
    releases.push(() => cancelDebounce(), scheduler.every(pollPeriodMs, requestRead));
  };

  return {
    name: `file ${path}`,
    async start(observer) {
      const guarded: SourceObserver = {
        onSpecs: (specs) => isStopped || observer.onSpecs(specs),
        onError: (error) => isStopped || observer.onError(error),
      };
      const reader = createListReader(path, parse, guarded);
      // Watching begins before the first read, so no change falls between the two.
      follow(reader.refresh);
      const first = reader.readFirst();
      reads = first.catch(() => {});
      await first.catch((error: unknown) => {
        release();
        throw error;
      });
    },
    async stop() {
      release();
      await reads;
    },
  };
}

interface ListReader {
  /** Reads and gives the first list; throws what goes wrong. */
  readFirst(): Promise<void>;
  /** Gives a list when the content differs from that of the last good one; reports what goes wrong, never throws. */
  refresh(): Promise<void>;
}

function createListReader(path: string, parse: FileSourceOptions["parse"], observer: SourceObserver): ListReader {
  let goodDigest: string | undefined;
  /** The failure that stands. Its digest, absent when reading failed, saves parsing bad content again on every poll. */
  let failure: { readonly message: string; readonly digest: string | undefined } | undefined;

  const accept = (content: FileContent): void => {
    const specs = parseContent(content, path, parse);
    goodDigest = content.digest;
    failure = undefined;
    observer.onSpecs(specs);
  };
  const fail = (thrown: unknown, digest: string | undefined): void => {
    const error = asEspalierError(thrown);
    const isKnown = failure?.message === error.message;
    failure = { message: error.message, digest };
    if (!isKnown) observer.onError(error);
  };

  return {
    async readFirst() {
      accept(await readBoundedFile(path));
    },
    async refresh() {
      let digest: string | undefined;
      try {
        const content = await readBoundedFile(path);
        digest = content.digest;
        if (digest === goodDigest) failure = undefined;
        else if (digest !== failure?.digest) accept(content);
      } catch (error) {
        fail(error, digest);
      }
    },
  };
}

function parseContent({ bytes }: FileContent, path: string, parse: FileSourceOptions["parse"]): readonly EngineSpec[] {
  try {
    return parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes), path);
  } catch (error) {
    if (error instanceof EspalierError) throw error;
    const reason = error instanceof Error ? error.message : String(error);
    throw new EspalierError("config_invalid", `${path}: ${reason}`, { cause: error });
  }
}
