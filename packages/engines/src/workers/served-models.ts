import { type EngineId, isJsonObject, parseJson } from "@espalier/core";
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
  readonly ignored: number;
}

/**
 * Reads the answer to `GET /v1/models`.
 *
 * @param nowSeconds Unix time, for entries that do not say when they were created
 * @returns undefined when it is not a list of models
 */
export function parseModelList(body: string, nowSeconds: number): ModelList | undefined {
  const parsed = parseJson(body);
  const data = isJsonObject(parsed) ? parsed.data : undefined;
  if (!Array.isArray(data)) return undefined;
  return collect(data, (entry: unknown) => (isJsonObject(entry) ? readModel(entry, nowSeconds) : undefined));
}

/** The models that a source of discovery names. */
export function modelsFromNames(names: readonly string[], nowSeconds: number): ModelList {
  return collect(names, (id) => (isModelName(id) ? { id, created: nowSeconds, ownedBy: "espalier" } : undefined));
}

/** Whether two lists are equal apart from `created`, which vLLM changes in every answer. */
export function sameModels(left: readonly ServedModel[], right: readonly ServedModel[]): boolean {
  return left.length === right.length && left.every((model, index) => isSameModel(model, right[index]!));
}

function isSameModel(left: ServedModel, right: ServedModel): boolean {
  return (
    left.id === right.id &&
    left.ownedBy === right.ownedBy &&
    left.maxModelLen === right.maxModelLen &&
    left.root === right.root &&
    left.parent === right.parent
  );
}

function collect<T>(entries: readonly T[], read: (entry: T) => ServedModel | undefined): ModelList {
  const models = new Map<string, ServedModel>();
  for (const entry of entries) {
    if (models.size === maxModelsPerEngine) break;
    const model = read(entry);
    if (model && !models.has(model.id)) models.set(model.id, model);
  }
  return { models: [...models.values()], ignored: entries.length - models.size };
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

/** A LoRA adapter that the router has engines load on demand. Every engine that serves its model can serve it. */
export interface ManagedAdapter {
  readonly name: string;
  /** The model that it is for. */
  readonly model: string;
}

/**
 * Which engines serve which model. A change of one engine costs what its own models cost, not those of the fleet: adapters
 * are loaded on demand, so that lists change all the time.
 */
export class ModelIndex {
  readonly #adapters: readonly ManagedAdapter[];
  /** The engines of each model, as they list it. */
  readonly #servers = new Map<string, Map<EngineRecord, ServedModel>>();
  /** What was taken from each engine. */
  readonly #listed = new Map<EngineRecord, readonly ServedModel[]>();
  /** The place of every engine in the fleet, by when it was first set. */
  readonly #places = new WeakMap<EngineRecord, number>();
  #nextPlace = 0;
  /** Made when asked for, and again after a change. */
  readonly #pools = new Map<string, readonly Target[]>();
  readonly #entries = new Map<string, ModelEntry>();
  #models: readonly ModelEntry[] | undefined;

  /** @param adapters served by every engine that serves their model, and by engines that already have them */
  constructor(adapters: readonly ManagedAdapter[] = []) {
    this.#adapters = adapters;
  }

  /** Takes an engine that takes work, or its new list of models. */
  set(engine: EngineRecord): void {
    if (!this.#places.has(engine)) this.#places.set(engine, this.#nextPlace++);
    const before = new Map(this.#listed.get(engine)?.map((model) => [model.id, model]));
    const now = modelsOf(engine, this.#adapters);
    this.#listed.set(engine, now);
    for (const model of now) {
      const known = before.get(model.id);
      before.delete(model.id);
      if (known && isSameModel(known, model) && known.created === model.created) continue;
      const servers = this.#servers.get(model.id) ?? new Map<EngineRecord, ServedModel>();
      this.#servers.set(model.id, servers.set(engine, model));
      this.#changed(model.id);
    }
    for (const id of before.keys()) this.#remove(engine, id);
  }

  /** The engine takes no more work. */
  remove(engine: EngineRecord): void {
    for (const { id } of this.#listed.get(engine) ?? []) this.#remove(engine, id);
    this.#listed.delete(engine);
  }

  /** The targets of a model, in the order of the fleet. */
  pool(id: string): readonly Target[] {
    const known = this.#pools.get(id);
    if (known) return known;
    const servers = this.#serversOf(id);
    if (servers.length === 0) return noTargets;
    const made = servers.flatMap(([engine]) => engine.targets);
    this.#pools.set(id, made);
    return made;
  }

  entry(id: string): ModelEntry | undefined {
    const known = this.#entries.get(id);
    if (known) return known;
    const servers = this.#serversOf(id);
    if (servers.length === 0) return undefined;
    const made = joinModels(id, servers);
    this.#entries.set(id, made);
    return made;
  }

  /** All models, sorted by id. */
  models(): readonly ModelEntry[] {
    this.#models ??= [...this.#servers.keys()].sort().map((id) => this.entry(id)!);
    return this.#models;
  }

  /** The pool of each model. */
  *pools(): Iterable<readonly [model: string, targets: readonly Target[]]> {
    for (const id of this.#servers.keys()) yield [id, this.pool(id)];
  }

  #remove(engine: EngineRecord, id: string): void {
    const servers = this.#servers.get(id);
    servers?.delete(engine);
    if (servers?.size === 0) this.#servers.delete(id);
    this.#changed(id);
  }

  #changed(id: string): void {
    this.#pools.delete(id);
    this.#entries.delete(id);
    this.#models = undefined;
  }

  #serversOf(id: string): readonly [EngineRecord, ServedModel][] {
    const place = ([engine]: [EngineRecord, ServedModel]): number => this.#places.get(engine)!;
    return [...(this.#servers.get(id) ?? [])].sort((left, right) => place(left) - place(right));
  }
}

const noTargets: readonly Target[] = [];

function joinModels(id: string, servers: readonly [EngineRecord, ServedModel][]): ModelEntry {
  const models = servers.map(([, model]) => model);
  const known = <T>(values: readonly (T | undefined)[]): readonly T[] => values.filter((value) => value !== undefined);
  const lengths = known(models.map(({ maxModelLen }) => maxModelLen));
  const roots = new Set(known(models.map(({ root }) => root)));
  const [root] = roots;
  const { ownedBy, parent } = models[0]!;
  return {
    id,
    engines: servers.map(([engine]) => engine.id),
    created: Math.min(...models.map(({ created }) => created)),
    ...(lengths.length === 0 ? {} : { max_model_len: Math.min(...lengths) }),
    owned_by: ownedBy,
    ...(root === undefined ? {} : { root: roots.size === 1 ? root : id }),
    ...(parent === undefined ? {} : { parent }),
  };
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
