import type { EngineSpec, Meter, Startable } from "@espalier/common";
import { type CompiledConfig, parseEnginesFile } from "@espalier/config";
import { createFileSource, type EngineSource, mergeSources } from "@espalier/discovery";
import type { Fleet } from "@espalier/workers";
import type { EngineBoard } from "../operator/engine-board.ts";
import { createOperatorEngines, type OperatorEngines } from "../operator/operator-engines.ts";
import { createSourceMeters } from "./source-meters.ts";
import { createSourceSets, type SourceConfig, type SourceSetDeps } from "./source-set.ts";

const metricNames = { up: "espalier_discovery_source_up", failures: "espalier_discovery_failures_total" };

export interface EngineSourcesDeps extends SourceSetDeps {
  readonly config: SourceConfig & Pick<CompiledConfig, "enginesFile">;
  /** What operators say of engines. */
  readonly board: EngineBoard;
  readonly fleet: Pick<Fleet, "apply">;
  readonly meter: Meter;
}

export interface EngineSources extends Startable {
  /** For operators who add engines and remove them. */
  readonly operators: Pick<OperatorEngines, "add" | "remove">;
  /**
   * The engines that a configuration lists and the sources that it names, from now on; the file stays that of the start.
   *
   * @returns resolves when they count; never rejected
   */
  follow(config: SourceConfig): Promise<void>;
}

/**
 * Feeds the fleet from the engines that the configuration lists, the file that it names, what it says to follow, and what
 * operators add; less those that they remove.
 */
export function createEngineSources(deps: EngineSourcesDeps): EngineSources {
  const { config, fleet, logger } = deps;
  const { enginesFile: path } = config;
  let listed: readonly EngineSpec[] = [];
  const operators = createOperatorEngines({ board: deps.board, listed: () => listed, logger });
  const file = path === undefined ? [] : [createFileSource({ path, parse: parseEnginesFile, logger })];
  const setOf = createSourceSets(deps);
  const sourcesOf = (said: SourceConfig): readonly EngineSource[] => {
    const set = setOf(said);
    return [set.listed, ...file, ...set.discovered, operators.source];
  };
  const meters = createSourceMeters(deps.meter, metricNames, "engines");
  const named = deps.meter
    .gauge({ name: "espalier_discovery_engines", help: "Engines that all sources name together." })
    .series();
  const merged = mergeSources(sourcesOf(config), {
    onList(specs: readonly EngineSpec[]) {
      listed = specs;
      const present = operators.present(listed);
      named.set(present.length);
      fleet.apply(present);
    },
    onError(error, source) {
      meters.failed(source);
      meters.isUp(source, false);
      // What others do not answer mends itself; what was written wrong does not.
      const level = error.code === "discovery_failed" ? "warn" : "error";
      logger[level]("engine source failed; the last good list stays", { source, error });
    },
    onConflict: (error, source) => logger.error("an engine is left out", { source, error }),
    onRecovered(source) {
      meters.isUp(source, true);
      logger.info("engine source is followed again", { source });
    },
    onFollowed: (source) => meters.isUp(source, true),
    onLeft: meters.left,
  });
  return {
    operators,
    start: () => merged.start(),
    follow: (said) => merged.follow(sourcesOf(said)),
    stop: () => merged.stop(),
  };
}
