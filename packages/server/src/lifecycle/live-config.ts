import type { Random } from "@espalier/common";
import { type CompiledConfig, changedPaths, isTakenUp, takeUp } from "@espalier/config";
import type { DataPlaneSettings } from "../data-plane/router-context.ts";
import { dataPlaneSettings } from "../router-options.ts";
import { createModelRouter, type ModelRouter } from "../routing/model-router.ts";
import { poolRules } from "../routing/pool-rules.ts";
import type { Pools } from "../routing/pools.ts";

/** What became of a configuration that was given to a running router, by path in its file. */
export interface Reconfiguration {
  /** In force from now on. */
  readonly applied: readonly string[];
  /** Others than the router runs with; they count from its next start on. */
  readonly needsRestart: readonly string[];
}

/** What a router runs with: requests read it anew, so that they see one configuration each and never a mixture. */
export interface LiveConfig {
  readonly current: CompiledConfig;
  readonly settings: DataPlaneSettings;
  readonly modelRouter: ModelRouter;
  /** @throws EspalierError `config_invalid`; nothing has changed then */
  apply(config: CompiledConfig): Reconfiguration;
}

export interface LiveConfigOptions {
  readonly config: CompiledConfig;
  readonly random: Random;
  readonly pools: Pick<Pools, "replaceRules">;
  /** Told what is in force after each change. */
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
      const next = takeUp(current, loaded);
      const taken = new Set(changed.filter((path) => isTakenUp(path, current, loaded)));
      const isNew = (section: string): boolean => changed.some((path) => path.split(".", 1)[0] === section);
      // Nothing from here on throws. Splits draw anew only where names changed.
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
