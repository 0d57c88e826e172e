import { resolve } from "node:path";
import { asEspalierError, EspalierError } from "@espalier/core";
import type { Source, SourceObserver } from "./engine-source.ts";
import { type FileContent, type FileWatchOptions, readBoundedFile, watchFile } from "./local-file.ts";

export interface FileSourceOptions<Entry> extends FileWatchOptions {
  /** Parses the text of the file. What it throws is reported as an error of the file. */
  readonly parse: (text: string, path: string) => readonly Entry[];
}

/**
 * A source that follows a file, as `watchFile` does. A change that cannot be read or parsed is reported once and leaves the
 * last good list. So does a file that becomes blank, as while it is being written: an empty list must be written as `[]`.
 *
 * `start` throws EspalierError `config_unreadable` when the file is absent, unreadable, not a regular file or larger
 * than 16 MiB, `config_invalid` when it is not UTF-8, and what `parse` throws.
 */
export function createFileSource<Entry>(options: FileSourceOptions<Entry>): Source<Entry> {
  const path = resolve(options.path);
  let isStopped = false;
  let unwatch = async (): Promise<void> => {};
  const stop = (): Promise<void> => {
    isStopped = true;
    return unwatch();
  };
  return {
    name: `file ${path}`,
    async start(observer) {
      const guarded: SourceObserver<Entry> = {
        onList: (list) => isStopped || observer.onList(list),
        onError: (error) => isStopped || observer.onError(error),
        onRecovered: () => isStopped || observer.onRecovered(),
      };
      const reader = createListReader(path, options.parse, guarded);
      let first = Promise.resolve();
      // Watching begins before the first read, so no change falls between the two.
      unwatch = watchFile(options, async () => {
        await first.catch(() => {});
        if (!isStopped) await reader.refresh();
      });
      first = reader.readFirst();
      await first.catch((error: unknown) => {
        void stop();
        throw error;
      });
    },
    stop,
  };
}

function createListReader<Entry>(
  path: string,
  parse: FileSourceOptions<Entry>["parse"],
  observer: SourceObserver<Entry>,
) {
  let goodDigest: string | undefined;
  let hadContent = false;
  /** The current failure. Its digest, absent if reading failed, avoids parsing bad content again on every poll. */
  let failure: { readonly message: string; readonly digest: string | undefined } | undefined;

  const accept = (content: FileContent): void => {
    const text = decode(content, path);
    if (hadContent && isBlank(text)) throw new EspalierError("config_invalid", `${path}: ${blankReason}`);
    const list = parseText(text, path, parse);
    hadContent = !isBlank(text);
    goodDigest = content.digest;
    recover();
    observer.onList(list);
  };
  const recover = (): void => {
    if (failure === undefined) return;
    failure = undefined;
    observer.onRecovered();
  };
  const fail = (thrown: unknown, digest: string | undefined): void => {
    const error = asEspalierError(thrown);
    const isKnown = failure?.message === error.message;
    failure = { message: error.message, digest };
    if (!isKnown) observer.onError(error);
  };

  return {
    /** Reads and publishes the first list; throws on failure. */
    async readFirst(): Promise<void> {
      accept(await readBoundedFile(path));
    },
    /** Publishes a list if the content differs from that of the last good one; reports failures, never throws. */
    async refresh(): Promise<void> {
      let digest: string | undefined;
      try {
        const content = await readBoundedFile(path);
        digest = content.digest;
        if (digest === goodDigest) recover();
        else if (digest !== failure?.digest) accept(content);
      } catch (error) {
        fail(error, digest);
      }
    },
  };
}

const blankReason = "the file became empty; last list stays in use (write [] for no engines)";

/** Whether a YAML or JSON file has no content at all, not even an empty list. */
function isBlank(text: string): boolean {
  return text.split("\n").every((line) => /^\s*(#.*|---)?\s*$/.test(line));
}

function decode({ bytes }: FileContent, path: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (error) {
    throw new EspalierError("config_invalid", `${path}: ${reasonOf(error)}`, { cause: error });
  }
}

function parseText<Entry>(text: string, path: string, parse: FileSourceOptions<Entry>["parse"]): readonly Entry[] {
  try {
    return parse(text, path);
  } catch (error) {
    if (error instanceof EspalierError) throw error;
    throw new EspalierError("config_invalid", `${path}: ${reasonOf(error)}`, { cause: error });
  }
}

const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
