import type { EngineId } from "@espalier/common";
import type { EngineRecord, Target } from "./engine-record.ts";
import type { ServedModel } from "./served-models.ts";

/** A model as the fleet serves it, in the words of the OpenAI list of models. */
export interface ModelEntry {
  readonly id: string;
  /** Engines that serve it, whatever their state, in the order of the fleet. */
  readonly engines: readonly EngineId[];
  /** Unix seconds; the earliest that any engine says. */
  readonly created: number;
  /** Longest context in tokens that every engine takes which names one. */
  readonly max_model_len?: number;
  readonly owned_by: string;
  /** The model that this one is a LoRA adapter of. */
  readonly parent?: string;
}

/** Which targets serve which model. */
export interface ModelIndex {
  readonly pools: ReadonlyMap<string, readonly Target[]>;
  /** Sorted by id. */
  readonly models: readonly ModelEntry[];
  /** The same by id. */
  readonly entries: ReadonlyMap<string, ModelEntry>;
}

/** A LoRA adapter that engines load when they are told to: whoever serves its model can serve it. */
export interface ManagedAdapter {
  readonly name: string;
  /** The model that it is for. */
  readonly model: string;
}

/**
 * @param engines those that take work, in the order of the fleet
 * @param adapters served by all that serve their model, besides those that have them
 */
export function buildModelIndex(engines: Iterable<EngineRecord>, adapters: readonly ManagedAdapter[] = []): ModelIndex {
  const pools = new Map<string, Target[]>();
  const entries = new Map<string, Writable<ModelEntry> & { engines: EngineId[] }>();
  for (const engine of engines) {
    for (const model of modelsOf(engine, adapters)) {
      const entry = entries.get(model.id);
      if (!entry) {
        entries.set(model.id, {
          id: model.id,
          engines: [engine.id],
          created: model.created,
          ...(model.maxModelLen === undefined ? {} : { max_model_len: model.maxModelLen }),
          owned_by: model.ownedBy,
          ...(model.parent === undefined ? {} : { parent: model.parent }),
        });
        pools.set(model.id, [...engine.targets]);
        continue;
      }
      entry.engines.push(engine.id);
      entry.created = Math.min(entry.created, model.created);
      if (model.maxModelLen !== undefined) {
        entry.max_model_len = Math.min(entry.max_model_len ?? Number.POSITIVE_INFINITY, model.maxModelLen);
      }
      pools.get(model.id)!.push(...engine.targets);
    }
  }
  const models = [...entries.values()].sort((left, right) => (left.id < right.id ? -1 : 1));
  return { pools, models, entries };
}

/** What an engine serves, and what it could serve with an adapter loaded. */
function modelsOf({ models = [] }: EngineRecord, adapters: readonly ManagedAdapter[]): readonly ServedModel[] {
  if (adapters.length === 0) return models;
  const served = new Map(models.map((model) => [model.id, model]));
  const loadable = adapters.flatMap(({ name, model }) => {
    const parent = served.get(model);
    return parent && !served.has(name) ? [{ ...parent, id: name, parent: model }] : [];
  });
  return [...models, ...loadable];
}

type Writable<T> = { -readonly [Key in keyof T]: T[Key] };
