import type { EngineId } from "@espalier/common";
import type { EngineRecord, Target } from "./engine-record.ts";

/** A model as one engine serves it. */
export interface ServedModel {
  readonly id: string;
  /** Unix seconds at which this router first saw it in this engine's list. */
  readonly created: number;
  readonly ownedBy: string;
  /** Longest context the engine takes, in tokens. */
  readonly maxModelLen?: number;
  /** Path or name of its weights. */
  readonly root?: string;
  /** The model that this one is a LoRA adapter of. */
  readonly parent?: string;
}

/** Further models of an engine are left out. */
export const maxModelsPerEngine = 256;
/** A model with a longer name is left out. */
export const maxModelNameLength = 256;
/** A longer root is left out: the longest path that Linux takes. */
const maxRootLength = 4_096;

export interface ModelList {
  readonly models: readonly ServedModel[];
  /** Entries left out: no usable name, a name twice, or beyond a limit. */
  readonly leftOut: number;
}

/**
 * Reads the answer to `GET /v1/models`.
 *
 * @param nowSeconds Unix time, for entries that do not say when they were created
 * @returns undefined when it is not a list of models
 */
export function parseModelList(body: string, nowSeconds: number): ModelList | undefined {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body);
  } catch {
    return undefined;
  }
  const data = isObject(parsed) ? parsed.data : undefined;
  if (!Array.isArray(data)) return undefined;
  return collect(data, (entry: unknown) => (isObject(entry) ? readModel(entry, nowSeconds) : undefined));
}

/** The models that a source of discovery names. */
export function modelsFromNames(names: readonly string[], nowSeconds: number): ModelList {
  return collect(names, (id) => (isModelName(id) ? { id, created: nowSeconds, ownedBy: "espalier" } : undefined));
}

/** Whether two lists are equal apart from `created`, which vLLM changes in every answer. */
export function sameModels(left: readonly ServedModel[], right: readonly ServedModel[]): boolean {
  return (
    left.length === right.length &&
    left.every((model, index) => {
      const other = right[index]!;
      return (
        model.id === other.id &&
        model.ownedBy === other.ownedBy &&
        model.maxModelLen === other.maxModelLen &&
        model.root === other.root &&
        model.parent === other.parent
      );
    })
  );
}

function collect<T>(entries: readonly T[], read: (entry: T) => ServedModel | undefined): ModelList {
  const models = new Map<string, ServedModel>();
  for (const entry of entries) {
    if (models.size === maxModelsPerEngine) break;
    const model = read(entry);
    if (model && !models.has(model.id)) models.set(model.id, model);
  }
  return { models: [...models.values()], leftOut: entries.length - models.size };
}

function readModel(entry: Readonly<Record<string, unknown>>, nowSeconds: number): ServedModel | undefined {
  const { id, created, owned_by: ownedBy, max_model_len: maxModelLen, root, parent } = entry;
  if (!isModelName(id)) return undefined;
  return {
    id,
    created: isPositiveInteger(created) ? created : nowSeconds,
    ownedBy: isModelName(ownedBy) ? ownedBy : "unknown",
    ...(isPositiveInteger(maxModelLen) ? { maxModelLen } : {}),
    ...(isRoot(root) ? { root } : {}),
    ...(isModelName(parent) ? { parent } : {}),
  };
}

const isModelName = (value: unknown): value is string =>
  typeof value === "string" && value.length > 0 && value.length <= maxModelNameLength;
const isRoot = (value: unknown): value is string =>
  typeof value === "string" && value.length > 0 && value.length <= maxRootLength;
const isPositiveInteger = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) > 0;
const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null;

/** A model as the fleet serves it, in the words of the OpenAI list of models. */
export interface ModelEntry {
  readonly id: string;
  /** Engines that serve it, in any state, in the order of the fleet. */
  readonly engines: readonly EngineId[];
  /** Unix seconds; the earliest reported by any engine. */
  readonly created: number;
  /** Longest context in tokens that every engine with a known limit accepts. */
  readonly max_model_len?: number;
  readonly owned_by: string;
  /** Path or name of the weights, as engines report it; the model's own name where they differ. */
  readonly root?: string;
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

/** A LoRA adapter that the router has engines load on demand. Every engine that serves its model can serve it. */
export interface ManagedAdapter {
  readonly name: string;
  /** The model that it is for. */
  readonly model: string;
}

/**
 * @param engines those that take work, in the order of the fleet
 * @param adapters served by every engine that serves their model, and by engines that already have them
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
          ...(model.root === undefined ? {} : { root: model.root }),
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
      if (model.root !== undefined) entry.root = model.root === (entry.root ?? model.root) ? model.root : model.id;
      pools.get(model.id)!.push(...engine.targets);
    }
  }
  const models = [...entries.values()].sort((left, right) => (left.id < right.id ? -1 : 1));
  return { pools, models, entries };
}

/** The models an engine serves, including those it could serve by loading an adapter. */
function modelsOf({ models = [] }: EngineRecord, adapters: readonly ManagedAdapter[]): readonly ServedModel[] {
  if (adapters.length === 0) return models;
  const served = new Map(models.map((model) => [model.id, model]));
  const loadable = adapters.flatMap(({ name, model }) => {
    const parent = served.get(model);
    if (!parent || served.has(name)) return [];
    const { root: _, ...rest } = parent;
    return [{ ...rest, id: name, parent: model }];
  });
  return [...models, ...loadable];
}

type Writable<T> = { -readonly [Key in keyof T]: T[Key] };
