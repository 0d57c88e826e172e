import type { EngineParameters } from "./types.ts";

/**
 * Refuses what an engine could never serve.
 *
 * @throws RangeError naming the request and the limit
 */
export function checkRequest(
  { id, promptTokens, outputTokens }: { readonly id: unknown; promptTokens: number; outputTokens: number },
  { maxModelLength, blockCount, blockSize }: EngineParameters,
): void {
  const total = promptTokens + outputTokens;
  if (promptTokens === 0) throw new RangeError(`request ${id}: the prompt is empty`);
  if (!(Number.isInteger(outputTokens) && outputTokens >= 1)) {
    throw new RangeError(`request ${id}: outputTokens ${outputTokens} is not a whole number of at least 1`);
  }
  if (total > maxModelLength) {
    throw new RangeError(`request ${id}: ${total} tokens exceed maxModelLength ${maxModelLength}`);
  }
  if (total > blockCount * blockSize) throw new RangeError(`request ${id}: ${total} tokens exceed all blocks`);
}
