import type { EngineParameters, ImportedPrompt } from "./types.ts";

interface RequestSize {
  readonly id: unknown;
  readonly promptTokens: number;
  readonly outputTokens: number;
  readonly imported?: ImportedPrompt | undefined;
}

/**
 * Refuses what an engine could never serve.
 *
 * @throws RangeError naming the request and the limit
 */
export function checkRequest(
  { id, promptTokens, outputTokens, imported }: RequestSize,
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
  if (!imported) return;
  const { tokens, setupMs, msPerToken } = imported;
  if (!(Number.isInteger(tokens) && tokens >= 1 && tokens <= promptTokens)) {
    throw new RangeError(`request ${id}: ${tokens} tokens from outside are not 1 to ${promptTokens}`);
  }
  if (!(isDuration(setupMs) && isDuration(msPerToken))) {
    throw new RangeError(`request ${id}: setupMs ${setupMs} or msPerToken ${msPerToken} is not a duration`);
  }
}

const isDuration = (ms: number): boolean => Number.isFinite(ms) && ms >= 0;
