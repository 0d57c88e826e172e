import { type CapturedRequest, usageOf } from "@espalier/bench";
import type { ContentEvent } from "./capture.ts";

export type StoredEvent = Extract<ContentEvent, { type: "stored" }>;

/** Tokens that nobody knows: no prompt contains them, so a block of them can be found nowhere else. */
export const UNKNOWN_TOKEN = 0x80000000;

/**
 * The prompt as captured, unless the engine counted another length (SGLang drops the tools of `tool_choice: none`, its
 * tokenizer endpoint keeps them): then as far as full blocks show it.
 */
export function promptOf(
  request: CapturedRequest,
  stored: readonly StoredEvent[],
  blockSize: number,
): readonly number[] {
  const captured = request.prompt_token_ids!;
  const length = usageOf(request)?.prompt_tokens ?? captured.length;
  if (length === captured.length || (request.request?.n ?? 1) > 1) return captured;
  const prompt = Array.from({ length }, (_, at) => captured[at] ?? UNKNOWN_TOKEN + at);
  for (const event of stored) {
    for (const [at, token] of event.tokens.entries()) {
      const position = event.depth * blockSize + at;
      if (position < length) prompt[position] = token;
    }
  }
  return prompt;
}

/** The generated tokens: as returned, else as far as full blocks show them, the rest unknown. */
export function outputOf(
  request: CapturedRequest,
  stored: readonly StoredEvent[],
  sibling: number,
  blockSize: number,
): readonly number[] {
  const returned = request.output_token_ids?.[sibling];
  if (returned && returned.length > 0 && !request.aborted) return returned;
  const prompt = request.prompt_token_ids!;
  const wanted = request.aborted ? request.request!.max_tokens! : (usageOf(request)?.completion_tokens ?? 1);
  const output = Array.from({ length: wanted }, (_, index) => UNKNOWN_TOKEN + sibling * 0x10000 + index);
  const behind = stored.filter(
    (event) =>
      event.depth * blockSize + event.tokens.length > prompt.length &&
      event.tokens.every((token, at) => (prompt[event.depth * blockSize + at] ?? token) === token),
  );
  // Requests that ran together end at the same depth: one event each. A request alone has all of them.
  const rivals = behind.filter((event) => event.depth === behind[0]!.depth);
  const own = rivals.length > 1 ? behind.filter((event) => event === rivals[sibling]) : behind;
  for (const event of own) {
    for (const [at, token] of event.tokens.entries()) {
      const index = event.depth * blockSize + at - prompt.length;
      if (index >= 0 && index < wanted) output[index] = token;
    }
  }
  return output;
}
