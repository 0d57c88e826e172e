/** Priority of the requests that name it, by an InferenceObjective. */
interface InferenceObjective {
  readonly kind: "objective";
  /** Distinguishes objects of all pools: two objectives of one name are the same one. */
  readonly id: string;
  readonly name: string;
  /** The higher, the more urgent; 0 is a request without an objective. */
  readonly priority: number;
}

export interface WeightedTarget {
  readonly model: string;
  /** Relative share; above 0. */
  readonly weight: number;
}

export interface RewriteRule {
  /** Names that clients use; with an empty list it is for all. */
  readonly models: readonly string[];
  /** At least one. */
  readonly targets: readonly WeightedTarget[];
}

/** The rules of an InferenceModelRewrite. */
export interface ModelRewrite {
  readonly kind: "rewrite";
  /** Distinguishes objects of all pools. */
  readonly id: string;
  readonly name: string;
  /** In RFC 3339, in UTC; empty where it is not known. */
  readonly createdAt: string;
  readonly rules: readonly RewriteRule[];
}

/** What Kubernetes says about the requests to an InferencePool. */
export type InferenceObject = InferenceObjective | ModelRewrite;

/** Names of models that rewrites can match, over all pools; as many as there can be aliases. */
const maxRewrittenModels = 10_000;

/** Objectives and model rewrites by name. They change while they are used: read them for each request. */
export interface InferenceTables {
  /** @returns undefined if there is no such objective */
  priorityOf(objective: string): number | undefined;
  /** Names of all objectives. */
  readonly objectives: readonly string[];
  /** The distinct priorities of all objectives, the most urgent first. */
  readonly priorities: readonly number[];
  /** @returns the models that share the requests for a model; undefined if they are not rewritten */
  rewriteOf(model: string): { readonly targets: readonly WeightedTarget[] } | undefined;
  /** Models that rules name, without those that only a rule for all models matches. */
  readonly rewrittenModels: readonly string[];
  /** Models that rules name beyond those that are kept. */
  readonly ignored: number;
  /** Calls a listener after each change. @returns a function that ends this */
  onChange(listener: () => void): () => void;
}

export interface WritableInferenceTables extends InferenceTables {
  /** @param objects of distinct ids */
  replace(objects: readonly InferenceObject[]): void;
}

/**
 * Empty tables. A rule that names a model takes precedence over one for all models, then the older rewrite, by its name
 * where both are as old, then the earlier rule of a rewrite: the precedence of the InferenceModelRewrite API.
 */
export function createInferenceTables(): WritableInferenceTables {
  const listeners = new Set<() => void>();
  let objectives: ReadonlyMap<string, number> = new Map();
  let priorities: readonly number[] = [];
  let rewrites = tableOf([]);
  return {
    priorityOf: (objective) => objectives.get(objective),
    get objectives() {
      return [...objectives.keys()];
    },
    get priorities() {
      return priorities;
    },
    rewriteOf: (model) => rewrites.byModel.get(model) ?? rewrites.forAll,
    get rewrittenModels() {
      return rewrites.models;
    },
    get ignored() {
      return rewrites.ignored;
    },
    onChange(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    replace(objects) {
      const said = objects.filter((one) => one.kind === "objective");
      objectives = new Map(said.map(({ name, priority }) => [name, priority] as const));
      priorities = [...new Set(objectives.values())].sort((left, right) => right - left);
      rewrites = tableOf(objects.filter((one) => one.kind === "rewrite"));
      for (const listener of listeners) listener();
    },
  };
}

interface RewriteTable {
  readonly byModel: ReadonlyMap<string, RewriteRule>;
  /** Its keys. */
  readonly models: readonly string[];
  readonly forAll: RewriteRule | undefined;
  readonly ignored: number;
}

function tableOf(rewrites: readonly ModelRewrite[]): RewriteTable {
  const byModel = new Map<string, RewriteRule>();
  let forAll: RewriteRule | undefined;
  let ignored = 0;
  for (const rule of [...rewrites].sort(byAge).flatMap(({ rules }) => rules)) {
    if (rule.models.length === 0) forAll ??= rule;
    for (const model of rule.models) {
      if (byModel.has(model)) continue;
      if (byModel.size < maxRewrittenModels) byModel.set(model, rule);
      else ignored += 1;
    }
  }
  return { byModel, models: [...byModel.keys()], forAll, ignored };
}

/** The same order in all routers. */
function byAge(left: ModelRewrite, right: ModelRewrite): number {
  return `${left.createdAt} ${left.id}` < `${right.createdAt} ${right.id}` ? -1 : 1;
}
