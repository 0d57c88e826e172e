import { EspalierError } from "@espalier/core";
import { type EngineRecord, engineKindOf, type Target } from "@espalier/engines";
import { type AdapterApi, servesAdapter } from "../adapters/adapter-loader.ts";
import type { PoolSettings } from "../request/planned-request.ts";
import type { RouterContext } from "../router-context.ts";

/** What a request says about its model. */
interface NamedModel {
  /** As the client named it; undefined where it did not. */
  readonly model: string | undefined;
  /** A LoRA adapter named beside the model, as SGLang's clients do. */
  readonly adapter?: string | undefined;
  /** Keeps a session on one side of a split. */
  readonly sessionKey?: string | undefined;
}

interface ResolvedPool {
  /** The model's name at the engines, which a body that names a model must carry. */
  readonly model: string;
  /** The base model of an adapter. */
  readonly parent: string | undefined;
  readonly pool: PoolSettings;
  /** Empty only where requests wait for the first engine, or overflow backends answer. */
  readonly targets: readonly Target[];
  /** Whether an engine applies the adapter; undefined for a base model. */
  readonly serves: ((engine: EngineRecord) => boolean) | undefined;
}

type ServedModels = Pick<RouterContext, "fleet" | "live">;

/**
 * Finds the engines for a model.
 *
 * @param api engines that would answer a request for an adapter there by its base model are left out
 * @throws EspalierError `model_not_found`, `no_engine_available`, `missing_field` when none is named and there are
 *   several, or `adapter_not_served`
 */
export function resolvePool(context: RouterContext, named: NamedModel, api: AdapterApi): ResolvedPool {
  const { pools, overflow, fleet } = context;
  const model = servedModel(context, named);
  const { parent } = fleet.model(model) ?? {};
  const all = fleet.pool(model);
  if (all.length === 0 && !pools.isHeld(model) && !overflow.serves(model)) throw absent(context, named.model ?? model);
  const serves = parent === undefined ? undefined : (engine: EngineRecord) => servesAdapter(engine, model, api);
  const targets = serves ? all.filter(({ engine }) => serves(engine)) : all;
  if (targets.length === 0 && all.length > 0) {
    const why = `The engines of the adapter ${JSON.stringify(model)} do not support it on ${api.path}.`;
    throw new EspalierError("adapter_not_served", why, { param: "model" });
  }
  return { model, parent, pool: pools.settingsFor(model), targets, serves };
}

/** The name that SGLang's API has for whatever model an engine serves (`DEFAULT_MODEL_NAME`). */
const anyModel = "default";

function servedModel(context: ServedModels, { model, adapter, sessionKey }: NamedModel): string {
  const { fleet, live } = context;
  const name = model === undefined ? onlyModel(fleet) : live.modelRouter.resolve(model, sessionKey);
  if (!fleet.model(name)) {
    if (name === anyModel && isSglang(context, singleModel(fleet))) return singleModel(fleet)!;
    return namedAdapter(context, name, sessionKey) ?? name;
  }
  const isAdapter = adapter !== undefined && fleet.model(adapter)?.parent === name && isSglang(context, adapter);
  return isAdapter ? adapter : name;
}

/** The adapter in `base:adapter`, SGLang's name for one. Either part may have colons of its own. */
function namedAdapter({ fleet, live }: ServedModels, name: string, sessionKey: string | undefined): string | undefined {
  for (let at = name.indexOf(":"); at >= 0; at = name.indexOf(":", at + 1)) {
    const adapter = name.slice(at + 1);
    const parent = fleet.model(adapter)?.parent;
    if (parent !== undefined && live.modelRouter.resolve(name.slice(0, at), sessionKey) === parent) return adapter;
  }
  return undefined;
}

function isSglang({ fleet }: ServedModels, model: string | undefined): boolean {
  return model !== undefined && fleet.pool(model).some(({ engine }) => engineKindOf(engine) === "sglang");
}

/** The one base model that engines serve. It may have several names: they have one root. */
function singleModel(fleet: ServedModels["fleet"]): string | undefined {
  const bases = fleet.models().filter(({ parent }) => parent === undefined);
  return new Set(bases.map(({ id, root = id }) => root)).size === 1 ? bases[0]!.id : undefined;
}

function onlyModel(fleet: ServedModels["fleet"]): string {
  const single = singleModel(fleet);
  if (single !== undefined) return single;
  if (fleet.models().length === 0) {
    throw new EspalierError("no_engine_available", "No engine has listed its models yet.");
  }
  throw new EspalierError("missing_field", "The engines serve several models; set `model`.", {
    param: "model",
  });
}

/**
 * An engine that has not listed its models may serve this one, so the error is then temporary. One that was never reached is
 * not waited for once another has listed its models.
 */
function absent({ fleet, live: { modelRouter } }: ServedModels, model: string): EspalierError {
  const isListed = fleet.engines.some(({ models }) => models !== undefined);
  const undecided = !isListed || fleet.engines.some(({ models, state }) => !models && state !== "unreachable");
  if (undecided || modelRouter.targetsOf(model).length > 0) {
    return new EspalierError("no_engine_available", "No engine that serves this model is up.");
  }
  // One may have begun to serve it since its list was read: then the next request finds it.
  void fleet.refreshModels();
  return new EspalierError("model_not_found", `The model ${JSON.stringify(model)} does not exist.`, { param: "model" });
}
