import { type Logger, silentLogger } from "@espalier/core";
import { createFailureReport, type FailureReport, type Source, type SourceObserver } from "../engine-source.ts";
import type { InferenceObject, ModelRewrite, RewriteRule, WeightedTarget } from "../inference-tables.ts";
import { type KubernetesObject, listOf, objectOf, textOf } from "./api-objects.ts";
import { inNamespace } from "./kubernetes-source.ts";
import { createListWatch, type KubernetesPorts, type ListWatch } from "./list-watch.ts";

/** llm-d's group, and the one that these kinds had in the Gateway API Inference Extension. */
const groupVersions = ["llm-d.ai/v1alpha2", "inference.networking.x-k8s.io/v1alpha2"];
/** Groups of an InferencePool: of v1, which is a reference's default, and of v1alpha2. */
const poolGroups = ["inference.networking.k8s.io", "inference.networking.x-k8s.io"];

/** Objects of each kind in a namespace, of whatever pool. */
const maxObjects = 1_024;
/** Rules of an InferenceModelRewrite; further ones are left out. */
const maxRules = 64;
/** Models of a rule; further ones are left out. */
const maxModelsOfRule = 256;
/** Targets of a rule; further ones are left out. */
const maxTargets = 100;
/** Longest model name of a rule, in UTF-16 units. */
const maxModelLength = 256;
/** Largest weight of a target. */
const maxWeight = 1_000_000;

export interface InferenceObjectSourceOptions {
  /** Namespace of the pool and its objects. Undefined for the service account's own. */
  readonly namespace: string | undefined;
  /** Name of the InferencePool. */
  readonly pool: string;
  /** Whether to follow InferenceObjectives. */
  readonly objectives: boolean;
  /** Whether to follow InferenceModelRewrites. */
  readonly modelRewrites: boolean;
  readonly logger?: Logger;
}

/**
 * A source that follows what is said about the requests to an InferencePool: InferenceObjectives and
 * InferenceModelRewrites of its namespace whose `poolRef` names it. Of llm-d.ai/v1alpha2 and
 * inference.networking.x-k8s.io/v1alpha2 the first that the cluster has counts, as in llm-d. That it has neither is
 * normal: it is logged, and both are asked for again from time to time.
 */
export function createInferenceObjectSource(
  ports: KubernetesPorts,
  options: InferenceObjectSourceOptions,
): Source<InferenceObject> {
  const { namespace, pool, objectives, modelRewrites, logger = silentLogger } = options;
  const name = `requests of inference pool ${inNamespace(namespace, pool)}`;
  const watches: ListWatch[] = [];
  let known: ReadonlySet<string> = new Set();

  /** Logs each new problem once. */
  const complain = (found: readonly FoundRewrite[]): void => {
    const problems = new Set(
      found.flatMap(({ rewrite, problems: all }) => all.map((one) => `${rewrite.name}: ${one}`)),
    );
    for (const problem of problems) {
      if (!known.has(problem)) logger.warn("invalid part of a model rewrite ignored", { source: name, problem });
    }
    known = problems;
  };
  const follow = <T>(
    kind: { readonly plural: string; readonly title: string },
    report: FailureReport,
    read: (object: KubernetesObject) => T | null,
    onFound: (found: readonly T[]) => void,
  ): ListWatch =>
    createListWatch<T | null>(ports, {
      ...{ kind: kind.title, namespace, maxObjects, mustExist: false, parameters: {}, report, read },
      paths: (own) => groupVersions.map((group) => `/apis/${group}/namespaces/${own}/${kind.plural}`),
      onValues: (values) => onFound(values.filter((value) => value !== null)),
      onAbsent: () => logger.info(`the cluster has no ${kind.title}`, { source: name }),
    });

  return {
    name,
    async start(observer: SourceObserver<InferenceObject>) {
      const report = createFailureReport(name, observer);
      const lists = { objectives: [] as readonly InferenceObject[], rewrites: [] as readonly InferenceObject[] };
      const publish = (): void => observer.onList([...lists.objectives, ...lists.rewrites]);
      observer.onList([]);
      if (objectives) {
        const kind = { plural: "inferenceobjectives", title: "inference objectives" };
        const onFound = (found: readonly InferenceObject[]): void => {
          lists.objectives = found;
          publish();
        };
        watches.push(follow(kind, report, (object) => readObjective(object, pool), onFound));
      }
      if (modelRewrites) {
        const kind = { plural: "inferencemodelrewrites", title: "inference model rewrites" };
        const onFound = (found: readonly FoundRewrite[]): void => {
          complain(found);
          lists.rewrites = found.map(({ rewrite }) => rewrite);
          publish();
        };
        watches.push(follow(kind, report, (object) => readRewrite(object, pool), onFound));
      }
      await Promise.all(watches.map((watch) => watch.start()));
    },
    async stop() {
      for (const watch of watches) watch.stop();
    },
  };
}

/** Whether an object is about the pool, and is not being deleted. */
function isAbout(body: unknown, pool: string): boolean {
  const { metadata, spec } = objectOf(body);
  const { group = poolGroups[0], kind = "InferencePool", name } = objectOf(objectOf(spec).poolRef);
  const isPool = kind === "InferencePool" && poolGroups.includes(String(group)) && name === pool;
  return isPool && objectOf(metadata).deletionTimestamp === undefined;
}

/** @returns null if it is about another pool; it counts as one of the objects of its kind nevertheless */
export function readObjective({ name, body }: KubernetesObject, pool: string): InferenceObject | null {
  if (!isAbout(body, pool)) return null;
  const { priority } = objectOf(objectOf(body).spec);
  return {
    kind: "objective",
    id: `objective ${name}`,
    name,
    priority: Number.isInteger(priority) ? Number(priority) : 0,
  };
}

interface FoundRewrite {
  readonly rewrite: ModelRewrite;
  /** Parts that cannot be used, which are ignored. */
  readonly problems: readonly string[];
}

/** @returns null if it is about another pool */
export function readRewrite({ name, body }: KubernetesObject, pool: string): FoundRewrite | null {
  if (!isAbout(body, pool)) return null;
  const { metadata, spec } = objectOf(body);
  const { namespace, creationTimestamp } = objectOf(metadata);
  const problems: string[] = [];
  const written = listOf(objectOf(spec).rules);
  if (written.length > maxRules) problems.push(`rules beyond ${maxRules}`);
  const rules = written
    .slice(0, maxRules)
    .map((rule, at) => readRule(objectOf(rule), (problem) => problems.push(`rules[${at}]: ${problem}`)))
    .filter((rule) => rule !== undefined);
  const id = `rewrite ${String(namespace)}/${name}`;
  return { rewrite: { kind: "rewrite", id, name, createdAt: textOf(creationTimestamp) ?? "", rules }, problems };
}

/** @returns undefined if it has no target, or matches only what cannot be a model's name */
function readRule(
  { matches, targets }: Readonly<Record<string, unknown>>,
  complain: (problem: string) => void,
): RewriteRule | undefined {
  const written = listOf(matches);
  const names = written.map((match) => readModelMatch(objectOf(objectOf(match).model)));
  const models = [...new Set(names.filter((name) => name !== undefined))];
  if (names.includes(undefined)) complain("a match that is not of type Exact, or names no model");
  if (models.length > maxModelsOfRule) complain(`models beyond ${maxModelsOfRule}`);
  const usable = readTargets(listOf(targets).map(objectOf), complain);
  if (usable.length === 0) complain("no target");
  // A rule whose matches are all unusable must not become one that matches every request.
  if (usable.length === 0 || (written.length > 0 && models.length === 0)) return undefined;
  return { models: models.slice(0, maxModelsOfRule), targets: usable };
}

function readModelMatch({ type = "Exact", value }: Readonly<Record<string, unknown>>): string | undefined {
  return type === "Exact" ? modelName(value) : undefined;
}

/** Weights are given to all targets or to none. As in llm-d, a target without one gets nothing where others have one. */
function readTargets(
  written: readonly Readonly<Record<string, unknown>>[],
  complain: (problem: string) => void,
): readonly WeightedTarget[] {
  const isWeighted = written.some(({ weight }) => weight !== undefined);
  const targets = written.map(({ modelRewrite, weight = isWeighted ? 0 : 1 }) => ({
    model: modelName(modelRewrite),
    weight: Number.isInteger(weight) ? Number(weight) : 0,
  }));
  const usable = targets.filter(
    (target): target is WeightedTarget =>
      target.model !== undefined && target.weight >= 1 && target.weight <= maxWeight,
  );
  if (usable.length < targets.length) complain("a target without a model, or without a weight where others have one");
  if (usable.length > maxTargets) complain(`targets beyond ${maxTargets}`);
  return usable.slice(0, maxTargets);
}

function modelName(value: unknown): string | undefined {
  const name = textOf(value);
  return name === undefined || name.length > maxModelLength ? undefined : name;
}
