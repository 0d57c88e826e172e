import { EspalierError } from "@espalier/common";
import type { FastifyInstance } from "fastify";
import type { RouterContext } from "./router-context.ts";

/** One entry of `GET /v1/models`. */
interface ListedModel {
  readonly id: string;
  readonly object: "model";
  readonly created: number;
  readonly owned_by: string;
  readonly max_model_len?: number;
}

/** The models of all engines, and the aliases and splits that lead to one of them. */
export function registerModelRoutes(app: FastifyInstance, context: RouterContext): void {
  app.get("/v1/models", async () => ({ object: "list", data: listModels(context) }));
  app.get<{ Params: { "*": string } }>("/v1/models/*", async (request) => {
    const id = request.params["*"];
    const found = listModels(context).find((model) => model.id === id);
    if (!found) throw new EspalierError("model_not_found", `The model ${JSON.stringify(id)} does not exist.`);
    return found;
  });
}

function listModels({ fleet, live: { modelRouter } }: RouterContext): readonly ListedModel[] {
  const served = new Map<string, ListedModel>(
    fleet.models().map((model) => [
      model.id,
      {
        id: model.id,
        object: "model",
        created: model.created,
        owned_by: model.owned_by,
        ...(model.max_model_len === undefined ? {} : { max_model_len: model.max_model_len }),
      },
    ]),
  );
  const listed = [...served.values()];
  for (const name of modelRouter.names) {
    const target = modelRouter
      .targetsOf(name)
      .map((model) => served.get(model))
      .find((model) => model !== undefined);
    if (target && !served.has(name)) listed.push({ ...target, id: name });
  }
  return listed;
}
