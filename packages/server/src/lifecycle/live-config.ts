import { EspalierError, type Random } from "@espalier/common";
import { applyReload, type CompiledConfig, changedPaths, isAppliedOnReload } from "@espalier/config";
import { hashString } from "@espalier/policies";
import type { DataPlaneSettings } from "../router-context.ts";
import { type Pools, poolRules } from "../routing/pools.ts";

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
  readonly settings: DataPlaneSettings;
  readonly modelRouter: ModelRouter;
  /** @throws EspalierError `config_invalid`, and then changes nothing */
  apply(config: CompiledConfig): Reconfiguration;
}

interface LiveConfigOptions {
  readonly config: CompiledConfig;
  readonly random: Random;
  readonly pools: Pick<Pools, "replaceRules">;
  /** Called with the configuration in force after each change. */
  readonly onChange?: (config: CompiledConfig) => void;
}

export function createLiveConfig({ config, random, pools, onChange }: LiveConfigOptions): LiveConfig {
  let current = config;
  let settings = dataPlaneSettings(config);
  let modelRouter = createModelRouter(config.models, random);
  return {
    get current() {
      return current;
    },
    get settings() {
      return settings;
    },
    get modelRouter() {
      return modelRouter;
    },
    apply(loaded) {
      const changed = changedPaths(current, loaded);
      const rules = poolRules(loaded);
      const next = applyReload(current, loaded);
      const taken = new Set(changed.filter((path) => isAppliedOnReload(path, current, loaded)));
      const isNew = (section: string): boolean => changed.some((path) => path.split(".", 1)[0] === section);
      // Nothing below throws. Splits are redrawn only where names changed.
      if (isNew("models")) modelRouter = createModelRouter(next.models, random);
      if (isNew("pools") || isNew("policy")) pools.replaceRules(rules);
      settings = dataPlaneSettings(next);
      current = next;
      onChange?.(next);
      return {
        applied: changed.filter((path) => taken.has(path)),
        needsRestart: changed.filter((path) => !taken.has(path)),
      };
    },
  };
}

interface WeightedModel {
  readonly model: string;
  /** Relative share; above 0. */
  readonly weight: number;
}

/** Names that clients may use and the models they stand for. */
interface ModelRouterOptions {
  readonly aliases: Readonly<Record<string, string>>;
  readonly splits: Readonly<Record<string, readonly WeightedModel[]>>;
}

/** Maps the model that a client names to the model that engines serve. */
interface ModelRouter {
  /**
   * @param sessionKey keeps a session on one side of a split; without it the side is drawn by weight
   * @returns the served model's name; the given one when it is neither an alias nor a split
   */
  resolve(model: string, sessionKey: string | undefined): string;
  /** Aliases and splits, for the list of models. */
  readonly names: readonly string[];
  /** Every model that a name can stand for. */
  targetsOf(name: string): readonly string[];
}

const maxAliasHops = 8;

export function createModelRouter(options: ModelRouterOptions, random: Random): ModelRouter {
  const aliases = new Map(Object.entries(options.aliases));
  const splits = new Map(Object.entries(options.splits));

  const pick = (sides: readonly WeightedModel[], sessionKey: string | undefined): string => {
    const total = sides.reduce((sum, side) => sum + side.weight, 0);
    let point = (sessionKey === undefined ? random.float() : hashString(sessionKey, 0) / 0x1_0000_0000) * total;
    for (const side of sides) {
      point -= side.weight;
      if (point < 0) return side.model;
    }
    return sides.at(-1)?.model ?? "";
  };

  return {
    names: [...aliases.keys(), ...splits.keys()],
    targetsOf(name) {
      let leads = name;
      for (let hop = 0; hop < maxAliasHops; hop++) leads = aliases.get(leads) ?? leads;
      return splits.get(leads)?.map((side) => side.model) ?? (leads === name ? [] : [leads]);
    },
    resolve(model, sessionKey) {
      let name = model;
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

/** The part of a configuration that the data plane's routes read. */
function dataPlaneSettings(config: CompiledConfig): DataPlaneSettings {
  return {
    apiKeys: config.apiKeys,
    corsOrigins: config.corsOrigins,
    sessionKeyLadder: config.sessionKey,
    maxNesting: config.limits.maxNesting,
    maxConcurrentRequests: config.limits.maxConcurrentRequests,
    maxBodyBytesInFlight: config.limits.maxBodyBytesInFlight,
    injectUsage: config.injectUsage,
    answerMs: config.timeouts.answerMs,
    trustTransferFields: config.trustTransferFields,
    forwardPaths: config.forwardPaths,
  };
}
