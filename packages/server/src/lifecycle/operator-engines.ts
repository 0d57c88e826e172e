import { type Cancel, type EngineId, type EngineSpec, EspalierError, type Logger } from "@espalier/common";
import { parseEnginesFile } from "@espalier/config";
import type { EngineSource, SourceObserver } from "@espalier/discovery";
import type { Registry } from "@espalier/replication";

/**
 * Engines that operators add and remove while routers run. One that they removed stays away wherever else it is listed,
 * until it is added again.
 */
export interface OperatorEngines {
  /** What operators added. It tells its list whenever `present` may give another answer, too. */
  readonly source: EngineSource;
  /** Those of a list that operators did not remove. */
  present(specs: readonly EngineSpec[]): readonly EngineSpec[];
  /**
   * Adds an engine, or brings back a removed one.
   *
   * @param written as under `engines` of the configuration
   * @throws EspalierError `invalid_value`, `worker_exists`
   */
  add(written: unknown): EngineId;
  /** @throws EspalierError `worker_not_found` */
  remove(id: EngineId): void;
}

interface OperatorEnginesOptions {
  readonly board: EngineBoard;
  /** Every engine that a source lists, removed ones too. */
  readonly listed: () => readonly EngineSpec[];
  readonly logger: Logger;
}

const removed: OperatorEntry = { removed: true };
const isRemoval = (value: OperatorEntry): boolean => value.removed === true;

export function createOperatorEngines({ board, listed, logger }: OperatorEnginesOptions): OperatorEngines {
  let observer: SourceObserver | undefined;
  let added: readonly EngineSpec[] = [];
  let removals: ReadonlySet<string> = new Set();
  let unlisten = (): void => {};

  const read = (): void => {
    const entries = board.entries();
    removals = new Set(entries.filter(({ value }) => isRemoval(value)).map(({ engine }) => engine));
    added = entries.flatMap(({ engine, value }) => (isRemoval(value) ? [] : readShared(engine, value, logger)));
    observer?.onList(added);
  };
  const isAdded = (id: EngineId): boolean => added.some((spec) => spec.id === id);
  const isListed = (id: EngineId): boolean => listed().some((spec) => spec.id === id);

  return {
    source: {
      name: "operators",
      async start(started) {
        observer = started;
        unlisten = board.onChange(read);
        read();
      },
      async stop() {
        observer = undefined;
        unlisten();
      },
    },
    present: (specs) => (removals.size === 0 ? specs : specs.filter(({ id }) => !removals.has(id))),
    add(written) {
      const { id, url } = readWritten(written);
      const isBack = removals.has(id) && isListed(id);
      const other = listed().find((spec) => spec.id === id || spec.url === url);
      if (other && !isBack) throw new EspalierError("worker_exists", `Engine ${other.id} has this id or URL already.`);
      // One that a source lists is as that source says; forgetting the removal brings it back.
      if (isBack) board.forget(id);
      else board.put(id, { ...(written as OperatorEntry), id });
      return id;
    },
    remove(id) {
      if (!isListed(id) || removals.has(id)) throw new EspalierError("worker_not_found");
      if (isAdded(id)) board.forget(id);
      else board.put(id, removed);
    },
  };
}

/** @throws EspalierError `invalid_value` naming what is wrong */
function readWritten(written: unknown): EngineSpec {
  try {
    const [spec] = parseEnginesFile(JSON.stringify([written]), "body");
    if (spec) return spec;
  } catch (error) {
    if (!(error instanceof EspalierError)) throw error;
    throw new EspalierError("invalid_value", error.message, { cause: error });
  }
  throw new EspalierError("invalid_value", "The body must describe one engine.");
}

/** What another router was told; one of another version may have been told what this one does not know. */
function readShared(engine: string, value: OperatorEntry, logger: Logger): readonly EngineSpec[] {
  try {
    return [readWritten(value)];
  } catch (error) {
    logger.warn("an engine that operators added cannot be read", { worker: engine, error });
    return [];
  }
}

/** What operators said of an engine: as in the configuration, or that it is gone. */
type OperatorEntry = Readonly<Record<string, unknown>>;

/** Where what operators said of engines stands, for this router alone or for all. */
export interface EngineBoard {
  entries(): readonly { readonly engine: string; readonly value: OperatorEntry }[];
  /** @throws EspalierError `invalid_value` for more than there is room for */
  put(engine: string, value: OperatorEntry): void;
  /** Nothing is said of it any more. */
  forget(engine: string): void;
  onChange(listener: () => void): Cancel;
}

/** Names operators among those who say something of engines. */
const source = "operator";
/** Engines of which operators of a router that shares nothing may have said something. */
export const maxOperatorEngines = 10_000;

/** For a router that shares nothing. */
export function createLocalBoard(): EngineBoard {
  const entries = new Map<string, OperatorEntry>();
  const listeners = new Set<() => void>();
  const tell = (): void => {
    for (const listener of [...listeners]) listener();
  };
  return {
    entries: () => [...entries].map(([engine, value]) => ({ engine, value })),
    put(engine, value) {
      if (!entries.has(engine) && entries.size >= maxOperatorEngines) {
        throw new EspalierError("invalid_value", `There is room for ${maxOperatorEngines} engines.`);
      }
      entries.set(engine, value);
      tell();
    },
    forget(engine) {
      if (entries.delete(engine)) tell();
    },
    onChange(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

/** What is said at one router holds at all. */
export function createSharedBoard(registry: Registry): EngineBoard {
  return {
    entries: () => registry.engines().filter((said) => said.source === source),
    put(engine, value) {
      try {
        registry.putEngine(engine, source, value);
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        throw new EspalierError("invalid_value", `Routers cannot share this engine: ${error.message}.`, {
          cause: error,
        });
      }
    },
    forget: (engine) => registry.removeEngine(engine, source),
    onChange: (listener) => registry.onChange(({ kind }) => kind === "engine" && listener()),
  };
}
