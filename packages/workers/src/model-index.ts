import type { EngineId } from "@espalier/common";
import type { EngineRecord, Target } from "./engine-record.ts";

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

/** @param engines those that take work, in the order of the fleet */
export function buildModelIndex(engines: Iterable<EngineRecord>): ModelIndex {
  const pools = new Map<string, Target[]>();
  const entries = new Map<string, Writable<ModelEntry> & { engines: EngineId[] }>();
  for (const engine of engines) {
    for (const model of engine.models ?? []) {
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

type Writable<T> = { -readonly [Key in keyof T]: T[Key] };
