import { type EngineId, type EngineSpec, EspalierError, type Startable } from "@espalier/common";
import type { EngineSource, SourceObserver } from "./engine-source.ts";

/** Who listens to several sources. Its functions return without throwing. */
export interface MergeObserver {
  /** The whole list as it is from now on; it replaces the one before. */
  onList(specs: readonly EngineSpec[]): void;
  /** What a source could not do; see `SourceObserver`. */
  onError(error: EspalierError, source: string): void;
  /** An engine of a source is left out, because another source has its id; told once for as long as that lasts. */
  onConflict(error: EspalierError, source: string): void;
  /** The failures of a source reported so far are over. */
  onRecovered(source: string): void;
}

/**
 * Joins sources into one list. An id that several sources list is taken from the first of them, in the order given;
 * each such id is reported as `config_invalid` once for as long as the conflict lasts. All sources start at once; the
 * observer gets one list when all have, then one on each change. When a source fails to start, the others are stopped
 * and `start` throws its error.
 */
export function mergeSources(sources: readonly EngineSource[], observer: MergeObserver): Startable {
  const lists: (readonly EngineSpec[])[] = sources.map(() => []);
  const running: EngineSource[] = [];
  let isRunning = false;
  let knownConflicts: ReadonlySet<EngineId> = new Set();

  const publish = (): void => {
    const { specs, conflicts } = unite(sources, lists);
    for (const [id, { message, source }] of conflicts) {
      if (!knownConflicts.has(id)) observer.onConflict(new EspalierError("config_invalid", message), source);
    }
    knownConflicts = new Set(conflicts.keys());
    observer.onList(specs);
  };
  const observerOf = (name: string, index: number): SourceObserver => ({
    onList(specs) {
      lists[index] = specs;
      if (isRunning) publish();
    },
    onError: (error) => observer.onError(error, name),
    onRecovered: () => observer.onRecovered(name),
  });
  const startOne = async (source: EngineSource, index: number): Promise<void> => {
    await source.start(observerOf(source.name, index));
    running.push(source);
  };
  const stop = async (): Promise<void> => {
    isRunning = false;
    await Promise.all(running.splice(0).map((source) => source.stop()));
  };

  return {
    async start() {
      const outcomes = await Promise.allSettled(sources.map(startOne));
      const failed = outcomes.find((outcome) => outcome.status === "rejected");
      if (failed) {
        await stop();
        throw failed.reason;
      }
      isRunning = true;
      publish();
    },
    stop,
  };
}

interface Union {
  readonly specs: readonly EngineSpec[];
  /** What to say about each id that was listed again, and the source that did. */
  readonly conflicts: ReadonlyMap<EngineId, { readonly message: string; readonly source: string }>;
}

function unite(sources: readonly EngineSource[], lists: readonly (readonly EngineSpec[])[]): Union {
  const specs: EngineSpec[] = [];
  const owners = new Map<EngineId, string>();
  const conflicts = new Map<EngineId, { message: string; source: string }>();
  for (const [index, { name }] of sources.entries()) {
    for (const spec of lists[index]!) {
      const owner = owners.get(spec.id);
      if (owner === undefined) {
        owners.set(spec.id, name);
        specs.push(spec);
      } else if (!conflicts.has(spec.id)) {
        const message = `engine ${spec.id} of ${name} is ignored: ${owner} has that id already`;
        conflicts.set(spec.id, { message, source: name });
      }
    }
  }
  return { specs, conflicts };
}
