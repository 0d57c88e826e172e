import type { EngineSpec, Logger, Startable } from "@espalier/common";
import { type CompiledConfig, parseEnginesFile } from "@espalier/config";
import { createFileSource, createStaticSource, mergeSources } from "@espalier/discovery";
import type { Fleet } from "@espalier/workers";

/** Feeds the fleet from the engines that the configuration lists and the file that it names. */
export function createEngineSources(
  { engines, enginesFile }: Pick<CompiledConfig, "engines" | "enginesFile">,
  fleet: Fleet,
  logger: Logger,
): Startable {
  const onSpecs = (specs: readonly EngineSpec[]): void => {
    fleet.apply(specs);
  };
  const onError = (error: unknown): void => logger.error("engine source failed; the last good list stays", { error });
  return mergeSources(
    [
      createStaticSource(engines),
      ...(enginesFile === undefined ? [] : [createFileSource({ path: enginesFile, parse: parseEnginesFile, logger })]),
    ],
    { onSpecs, onError },
  );
}
