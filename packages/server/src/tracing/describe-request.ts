import type { RequestView } from "@espalier/openai";
import type { RequestTrace } from "./request-trace.ts";
import { operationOf } from "./span-names.ts";

/** Tells a trace what a body asks for, once its model is known to be served: its name then has few values. */
export function describeRequest(trace: RequestTrace, view: RequestView, servedModel: string): void {
  const model = view.model ?? servedModel;
  trace.describe(`${operationOf(view.endpoint.id)} ${model}`, {
    "gen_ai.request.model": model,
    "gen_ai.request.max_tokens": view.maxOutputTokens,
    "espalier.model": servedModel,
    "espalier.stream": view.stream,
  });
}
