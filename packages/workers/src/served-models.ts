/** A model as one engine serves it. */
export interface ServedModel {
  readonly id: string;
  /** Unix seconds at which this router first heard of it from this engine. */
  readonly created: number;
  readonly ownedBy: string;
  /** Longest context the engine takes, in tokens. */
  readonly maxModelLen?: number;
  /** The model that this one is a LoRA adapter of. */
  readonly parent?: string;
}

/** Further models of an engine are left out. */
export const maxModelsPerEngine = 256;
/** A model with a longer name is left out. */
export const maxModelNameLength = 256;

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

/** Whether two lists say the same. When each was first heard of does not matter: vLLM stamps every answer anew. */
export function sameModels(left: readonly ServedModel[], right: readonly ServedModel[]): boolean {
  return (
    left.length === right.length &&
    left.every((model, index) => {
      const other = right[index]!;
      return (
        model.id === other.id &&
        model.ownedBy === other.ownedBy &&
        model.maxModelLen === other.maxModelLen &&
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
  const { id, created, owned_by: ownedBy, max_model_len: maxModelLen, parent } = entry;
  if (!isModelName(id)) return undefined;
  return {
    id,
    created: isPositiveInteger(created) ? created : nowSeconds,
    ownedBy: isModelName(ownedBy) ? ownedBy : "unknown",
    ...(isPositiveInteger(maxModelLen) ? { maxModelLen } : {}),
    ...(isModelName(parent) ? { parent } : {}),
  };
}

const isModelName = (value: unknown): value is string =>
  typeof value === "string" && value.length > 0 && value.length <= maxModelNameLength;
const isPositiveInteger = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) > 0;
const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null;
