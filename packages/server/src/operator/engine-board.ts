import { type Cancel, EspalierError } from "@espalier/common";
import type { Registry } from "@espalier/replication";

/** What operators said of an engine: as in the configuration, or that it is gone. */
export type OperatorEntry = Readonly<Record<string, unknown>>;

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
