import { EspalierError } from "@espalier/common";
import type { Target } from "@espalier/workers";
import type { PoolSettings } from "../routing/pools.ts";
import type { RouterContext } from "./router-context.ts";

export interface ResolvedPool {
  /** The model that the engines serve, which the body must name. */
  readonly model: string;
  readonly pool: PoolSettings;
  readonly targets: readonly Target[];
}

/**
 * Finds the engines for a model.
 *
 * @param model as the client named it; undefined where the API does not require one, which is then the only one served
 * @throws EspalierError `model_not_found`, `no_engine_available`, or `missing_field` when there are several models
 */
export function resolvePool(
  context: RouterContext,
  model: string | undefined,
  sessionKey: string | undefined,
): ResolvedPool {
  const served = model === undefined ? onlyModel(context) : context.live.modelRouter.resolve(model, sessionKey);
  const targets = context.fleet.pool(served);
  if (targets.length === 0) throw absent(context, model ?? served);
  return { model: served, pool: context.pools.settingsFor(served), targets };
}

function onlyModel({ fleet }: RouterContext): string {
  const models = fleet.models();
  const [first] = models;
  if (!first) throw new EspalierError("no_engine_available", "No engine has told its models yet.");
  if (models.length > 1) {
    throw new EspalierError("missing_field", "The engines serve several models; name one in `model`.", {
      param: "model",
    });
  }
  return first.id;
}

/** An engine that has not told its models may serve it: then it is too early to say that nobody does. */
function absent({ fleet, live: { modelRouter } }: RouterContext, model: string): EspalierError {
  const undecided = fleet.engines.length === 0 || fleet.engines.some((engine) => engine.models === undefined);
  if (undecided || modelRouter.names.includes(model)) {
    return new EspalierError("no_engine_available", "No engine that serves this model is up.");
  }
  return new EspalierError("model_not_found", `The model ${JSON.stringify(model)} does not exist.`, { param: "model" });
}
