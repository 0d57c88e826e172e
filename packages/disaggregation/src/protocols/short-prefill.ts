import type { Endpoint, JsonObject } from "@espalier/openai";

/**
 * Makes a request end with its first token and in one piece: an engine that computes a prompt for another one is asked
 * for that token only because the API has no smaller answer.
 */
export function shortPrefill(endpoint: Endpoint["id"], fields: JsonObject): Record<string, string> {
  const set: Record<string, string> = { stream: "false", max_tokens: "1" };
  if (endpoint === "chat") set.max_completion_tokens = "1";
  // Engines refuse options of a stream where there is none, and a lower bound above the upper one.
  if (fields.stream_options !== undefined) set.stream_options = "null";
  if (fields.min_tokens !== undefined) set.min_tokens = "0";
  return set;
}
