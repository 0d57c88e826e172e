import { EspalierError, type Random } from "@espalier/core";
import type { InferenceTables } from "@espalier/engines";
import { hashString } from "@espalier/policies";
import { applyReload, type CompiledConfig, changedPaths, isAppliedOnReload } from "../config/index.ts";
import type { PoolRule, Pools } from "../routing/pools.ts";

/** The effect of a new configuration on a running router, by path in its file. */
export interface Reconfiguration {
  /** In force from now on. */
  readonly applied: readonly string[];
  /** Changed, but in force only after a restart. */
  readonly needsRestart: readonly string[];
}

/** The configuration in force. Each request reads it once, so that it never sees a mix of two. */
export interface LiveConfig {
  readonly current: CompiledConfig;
  readonly modelRouter: ModelRouter;
  /** @throws EspalierError `config_invalid`, and then changes nothing */
  apply(config: CompiledConfig): Reconfiguration;
}

interface LiveConfigOptions {
  readonly config: CompiledConfig;
  readonly random: Random;
  readonly pools: Pick<Pools, "replaceRules">;
  /** @throws EspalierError `config_invalid` */
  readonly rulesOf: (config: CompiledConfig) => readonly PoolRule[];
  /** Model rewrites of inference pools, which change by themselves. */
  readonly rewrites: ModelRewrites;
  /** Called with the configuration in force after each change. */
  readonly onChange?: (config: CompiledConfig) => void;
}

export function createLiveConfig({
  config,
  random,
  pools,
  rulesOf,
  rewrites,
  onChange,
}: LiveConfigOptions): LiveConfig {
  let current = config;
  let modelRouter = createModelRouter({ ...config.models, rewrites }, random);
  return {
    get current() {
      return current;
    },
    get modelRouter() {
      return modelRouter;
    },
    apply(loaded) {
      const changed = changedPaths(current, loaded);
      const next = applyReload(current, loaded);
      const rules = rulesOf(next);
      const taken = new Set(changed.filter((path) => isAppliedOnReload(path, current, loaded)));
      const isNew = (section: string): boolean => changed.some((path) => path.split(".", 1)[0] === section);
      // Nothing below throws. Splits are redrawn only where names changed.
      if (isNew("models")) modelRouter = createModelRouter({ ...next.models, rewrites }, random);
      if (isNew("pools") || isNew("policy") || isNew("slo")) pools.replaceRules(rules);
      current = next;
      onChange?.(next);
      return {
        applied: changed.filter((path) => taken.has(path)),
        needsRestart: changed.filter((path) => !taken.has(path)),
      };
    },
  };
}

type ModelRewrites = Pick<InferenceTables, "rewriteOf" | "rewrittenModels">;

interface WeightedModel {
  readonly model: string;
  /** Relative share; above 0. */
  readonly weight: number;
}

/** Names that clients may use and the models they stand for. */
interface ModelRouterOptions {
  readonly aliases: Readonly<Record<string, string>>;
  readonly splits: Readonly<Record<string, readonly WeightedModel[]>>;
  /**
   * Splits of inference pools, for names that are neither aliases nor splits. They are the first step only: where they
   * lead, aliases and splits lead on, and rewrites do not, so that none leads round in a circle.
   */
  readonly rewrites: ModelRewrites;
}

/** Maps the model that a client names to the model that engines serve. */
interface ModelRouter {
  /**
   * @param sessionKey keeps a session on one side of a split; without it the side is drawn by weight
   * @returns the served model's name; the given one when it is neither an alias nor a split, and is not rewritten
   */
  resolve(model: string, sessionKey: string | undefined): string;
  /** Aliases, splits and models that are rewritten by their names, for the list of models. */
  readonly names: readonly string[];
  /** Every model that a name can stand for. */
  targetsOf(name: string): readonly string[];
}

/** Aliases in a row. A longer chain is rejected. */
const maxAliasHops = 8;

export function createModelRouter(options: ModelRouterOptions, random: Random): ModelRouter {
  const aliases = new Map(Object.entries(options.aliases));
  const splits = new Map(Object.entries(options.splits));
  const { rewrites } = options;
  const rewriteOf = (name: string): readonly WeightedModel[] | undefined =>
    aliases.has(name) || splits.has(name) ? undefined : rewrites.rewriteOf(name)?.targets;

  const pick = (sides: readonly WeightedModel[], sessionKey: string | undefined): string => {
    const total = sides.reduce((sum, side) => sum + side.weight, 0);
    let point = (sessionKey === undefined ? random.float() : hashString(sessionKey, 0) / 0x1_0000_0000) * total;
    for (const side of sides) {
      point -= side.weight;
      if (point < 0) return side.model;
    }
    return sides.at(-1)?.model ?? "";
  };

  const configuredTargets = (name: string): readonly string[] => {
    let leads = name;
    for (let hop = 0; hop < maxAliasHops; hop++) leads = aliases.get(leads) ?? leads;
    return splits.get(leads)?.map((side) => side.model) ?? (leads === name ? [] : [leads]);
  };

  return {
    get names() {
      return [...new Set([...aliases.keys(), ...splits.keys(), ...rewrites.rewrittenModels])];
    },
    targetsOf(name) {
      const rewritten = rewriteOf(name)?.map((side) => side.model);
      if (!rewritten) return configuredTargets(name);
      return [...new Set(rewritten.flatMap((model) => [model, ...configuredTargets(model)]))];
    },
    resolve(model, sessionKey) {
      const rewrite = rewriteOf(model);
      let name = rewrite ? pick(rewrite, sessionKey) : model;
      for (let hop = 0; hop < maxAliasHops; hop++) {
        const split = splits.get(name);
        const next = split ? pick(split, sessionKey) : aliases.get(name);
        if (next === undefined || next === name) return name;
        name = next;
      }
      throw new EspalierError("model_not_found", `The model name leads through more than ${maxAliasHops} aliases.`, {
        param: "model",
      });
    },
  };
}
