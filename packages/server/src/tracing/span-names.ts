import type { PlannedRequest } from "../request/planned-request.ts";

/**
 * What the OpenTelemetry conventions for generative AI call the operation of an endpoint; where they have no name for it,
 * the endpoint's own.
 */
const operations: Partial<Record<PlannedRequest["endpointId"], string>> = {
  messages: "chat",
  responses: "chat",
  completions: "text_completion",
  generate: "text_completion",
};

export function operationOf(endpointId: PlannedRequest["endpointId"] | undefined): string {
  return endpointId === undefined ? "request" : (operations[endpointId] ?? endpointId);
}
