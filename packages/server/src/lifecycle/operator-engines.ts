import { type Cancel, type EngineId, type EngineSpec, EspalierError, isJsonObject, type Logger } from "@espalier/core";
import type { EngineSource, SourceObserver } from "@espalier/engines";
import type { Registry } from "@espalier/shared-tree";
import { parseEnginesFile } from "../config/index.ts";

/**
 * Engines that operators add and remove at run time. A removed engine stays removed, whichever source lists it, until
 * an operator adds it again.
 */
export interface OperatorEngines {
  /** Engines that operators added. Also emits its list whenever the result of `present` may change. */
  readonly source: EngineSource;
  /** Filters removed engines out of a list. */
  present(specs: readonly EngineSpec[]): readonly EngineSpec[];
  /**
   * Adds an engine, or brings back a removed one.
   *
   * @param written as under `engines` of the configuration
   * @throws EspalierError `invalid_value`, `engine_exists`
   */
  add(written: unknown): EngineId;
  /** @throws EspalierError `engine_not_found` */
  remove(id: EngineId): void;
}

interface OperatorEnginesOptions {
  readonly table: OperatorTable;
  /** All engines of all sources, including removed ones. */
  readonly listed: () => readonly EngineSpec[];
  readonly logger: Logger;
}

const removed: OperatorEntry = { removed: true };
const isRemoval = (value: OperatorEntry): boolean => value.removed === true;

export function createOperatorEngines({ table, listed, logger }: OperatorEnginesOptions): OperatorEngines {
  let observer: SourceObserver | undefined;
  let added: readonly EngineSpec[] = [];
  let removals: ReadonlySet<string> = new Set();
  let unlisten = (): void => {};

  const read = (): void => {
    const entries = table.entries();
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
        unlisten = table.onChange(read);
        read();
      },
      async stop() {
        observer = undefined;
        unlisten();
      },
    },
    present: (specs) => (removals.size === 0 ? specs : specs.filter(({ id }) => !removals.has(id))),
    add(written) {
      if (!isJsonObject(written)) throw new EspalierError("invalid_value", "Invalid body: expected an engine object.");
      const { id, url } = readWritten(written);
      const isBack = removals.has(id) && isListed(id);
      const other = listed().find((spec) => spec.id === id || spec.url === url);
      if (other && !isBack) throw new EspalierError("engine_exists", `Engine ${other.id} has this id or URL already.`);
      // An engine from another source keeps that source's settings: deleting the removal brings it back.
      if (isBack) table.forget(id);
      else table.put(id, { ...written, id });
      return id;
    },
    remove(id) {
      if (!isListed(id) || removals.has(id)) throw new EspalierError("engine_not_found");
      if (isAdded(id)) table.forget(id);
      else table.put(id, removed);
    },
  };
}

/** @throws EspalierError `invalid_value` */
function readWritten(written: unknown): EngineSpec {
  try {
    const [spec] = parseEnginesFile(JSON.stringify([written]), "body");
    if (spec) return spec;
  } catch (error) {
    if (!(error instanceof EspalierError)) throw error;
    throw new EspalierError("invalid_value", error.message, { cause: error });
  }
  throw new EspalierError("invalid_value", "Invalid body: expected one engine.");
}

/** Reads an entry of another router, whose version may have settings unknown to this one. */
function readShared(engine: string, value: OperatorEntry, logger: Logger): readonly EngineSpec[] {
  try {
    return [readWritten(value)];
  } catch (error) {
    logger.warn("invalid operator engine", { engine, error });
    return [];
  }
}

/** An operator's entry for an engine: its settings as in the configuration, or its removal. */
type OperatorEntry = Readonly<Record<string, unknown>>;

/** The table of operators' entries, local or shared by all routers. */
export interface OperatorTable {
  entries(): readonly { readonly engine: string; readonly value: OperatorEntry }[];
  /** @throws EspalierError `invalid_value` when the table is full */
  put(engine: string, value: OperatorEntry): void;
  /** Removes the entry of an engine. */
  forget(engine: string): void;
  onChange(listener: () => void): Cancel;
}

/** Most entries at a router that shares nothing. */
export const maxOperatorEngines = 10_000;

/** For a router that shares nothing. */
export function createLocalTable(): OperatorTable {
  const entries = new Map<string, OperatorEntry>();
  const listeners = new Set<() => void>();
  const tell = (): void => {
    for (const listener of [...listeners]) listener();
  };
  return {
    entries: () => [...entries].map(([engine, value]) => ({ engine, value })),
    put(engine, value) {
      if (!entries.has(engine) && entries.size >= maxOperatorEngines) {
        throw new EspalierError("invalid_value", `Limit reached: ${maxOperatorEngines} operator engines.`);
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

/** Entries made at one router apply to all. @param source marks the table's entries in the shared registry */
export function createSharedTable(registry: Registry, source: string): OperatorTable {
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
