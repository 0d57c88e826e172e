import { type EngineId, type EngineSpec, EspalierError, type Startable, startTogether } from "@espalier/common";
import type { EngineSource, SourceObserver } from "./engine-source.ts";

/**
 * Joins sources into one list. An id that several sources list is taken from the first of them, in the order given;
 * each such id is reported as `config_invalid` once for as long as the conflict lasts. The observer gets one list when
 * all sources have started, then one on each change. When a source fails to start, those before it are stopped and
 * `start` throws its error.
 */
export function mergeSources(sources: readonly EngineSource[], observer: SourceObserver): Startable {
  const lists: (readonly EngineSpec[])[] = sources.map(() => []);
  let isRunning = false;
  let knownConflicts: ReadonlySet<EngineId> = new Set();

  const publish = (): void => {
    const { specs, conflicts } = unite(sources, lists);
    for (const [id, message] of conflicts) {
      if (!knownConflicts.has(id)) observer.onError(new EspalierError("config_invalid", message));
    }
    knownConflicts = new Set(conflicts.keys());
    observer.onSpecs(specs);
  };

  const parts = startTogether(
    sources.map((source, index) => ({
      start: () =>
        source.start({
          onSpecs(specs) {
            lists[index] = specs;
            if (isRunning) publish();
          },
          onError: (error) => observer.onError(error),
        }),
      stop: () => source.stop(),
    })),
  );
  return {
    async start() {
      await parts.start();
      isRunning = true;
      publish();
    },
    async stop() {
      isRunning = false;
      await parts.stop();
    },
  };
}

interface Union {
  readonly specs: readonly EngineSpec[];
  /** What to say about each id that was listed again. */
  readonly conflicts: ReadonlyMap<EngineId, string>;
}

function unite(sources: readonly EngineSource[], lists: readonly (readonly EngineSpec[])[]): Union {
  const specs: EngineSpec[] = [];
  const owners = new Map<EngineId, string>();
  const conflicts = new Map<EngineId, string>();
  for (const [index, { name }] of sources.entries()) {
    for (const spec of lists[index]!) {
      const owner = owners.get(spec.id);
      if (owner === undefined) {
        owners.set(spec.id, name);
        specs.push(spec);
      } else if (!conflicts.has(spec.id)) {
        conflicts.set(spec.id, `engine ${spec.id} of ${name} is ignored: ${owner} has that id already`);
      }
    }
  }
  return { specs, conflicts };
}
