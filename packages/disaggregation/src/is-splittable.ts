import type { RequestView } from "@espalier/openai";
import type { TransferProtocol } from "./transfer-protocol.ts";

/** Keys by which a client, or a router in front of this one, says itself how a request is split. */
const ownKeys = [
  "kv_transfer_params",
  "disaggregated_params",
  "cache_hit_threshold",
  "bootstrap_host",
  "bootstrap_port",
  "bootstrap_room",
] as const;

/** Keys whose effect on the prompt's computation a second engine could not see, or that ask for several answers. */
const wholeKeys = ["echo", "prompt_logprobs", "prompt_embeds", "best_of", "use_beam_search"] as const;

/** Whether two engines can serve a request in a protocol: one prompt, one answer of more than a token. */
export function isSplittable(
  { endpoint, body, choices, maxOutputTokens }: Pick<RequestView, "endpoint" | "body" | "choices" | "maxOutputTokens">,
  protocol: TransferProtocol,
): boolean {
  if (!protocol.endpoints.has(endpoint.id) || choices > 1 || maxOutputTokens === 0 || maxOutputTokens === 1)
    return false;
  const { fields } = body;
  const prompt = fields.prompt ?? fields.text ?? fields.input_ids;
  if (Array.isArray(prompt) && typeof prompt[0] !== "number") return false;
  if (ownKeys.some((key) => fields[key] !== undefined)) return false;
  return wholeKeys.every((key) => !fields[key]);
}
