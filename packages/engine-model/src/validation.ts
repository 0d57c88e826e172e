import { maxStateGroups, mostBlocksOf } from "./hybrid-cache.ts";
import type { RemoteSource } from "./kv-pull.ts";
import type { CacheFlavour, CpuWrites, EngineParameters, ImportedPrompt } from "./types.ts";

/** Each takes 32 bytes. */
export const maxCpuBlocks = 16_777_216;

/** The values of `cpuWrites`, the default first. */
export const cpuWritesOf: Readonly<Record<CacheFlavour, readonly CpuWrites[]>> = {
  vllm: ["prompt", "all"],
  sglang: ["write_through", "write_through_selective", "write_back"],
};

/** @throws RangeError when a parameter makes no sense */
export function checkParameters(parameters: EngineParameters): void {
  for (const name of ["blockSize", "blockCount", "maxBatchedTokens", "maxRunning", "maxModelLength"] as const) {
    const value = parameters[name];
    if (!(Number.isSafeInteger(value) && value >= 1))
      throw new RangeError(`${name} ${value} is not a whole number > 0`);
  }
  for (const name of [
    "stepBaseMs",
    "prefillMsPerToken",
    "attentionMsPerTokenPair",
    "decodeMsPerSequence",
    "decodeMsPerContextToken",
  ] as const) {
    const value = parameters[name];
    if (!(Number.isFinite(value) && value >= 0)) throw new RangeError(`${name} ${value} is not a duration`);
  }
  const { adapterSlots, adapterLoadMs, cpuBlocks, cpuLoadMsPerBlock } = parameters;
  if (adapterSlots !== undefined && !(Number.isSafeInteger(adapterSlots) && adapterSlots >= 1)) {
    throw new RangeError(`adapterSlots ${adapterSlots} is not a whole number > 0`);
  }
  if (adapterLoadMs !== undefined && !(Number.isFinite(adapterLoadMs) && adapterLoadMs >= 0)) {
    throw new RangeError(`adapterLoadMs ${adapterLoadMs} is not a duration`);
  }
  if (cpuBlocks !== undefined && !(Number.isSafeInteger(cpuBlocks) && cpuBlocks >= 0 && cpuBlocks <= maxCpuBlocks)) {
    throw new RangeError(`cpuBlocks ${cpuBlocks} is not a whole number from 0 to ${maxCpuBlocks}`);
  }
  if (cpuLoadMsPerBlock !== undefined && !(Number.isFinite(cpuLoadMsPerBlock) && cpuLoadMsPerBlock >= 0)) {
    throw new RangeError(`cpuLoadMsPerBlock ${cpuLoadMsPerBlock} is not a duration`);
  }
  const { cpuWrites, cpuChunkBlocks = 1, flavour } = parameters;
  if (cpuWrites !== undefined && !cpuWritesOf[flavour].includes(cpuWrites)) {
    throw new RangeError(`cpuWrites ${cpuWrites} is not ${cpuWritesOf[flavour].join(" or ")}, as of ${flavour}`);
  }
  if (!(Number.isSafeInteger(cpuChunkBlocks) && cpuChunkBlocks >= 1)) {
    throw new RangeError(`cpuChunkBlocks ${cpuChunkBlocks} is not a whole number > 0`);
  }
  if (cpuChunkBlocks > 1 && flavour !== "vllm") throw new RangeError("only vLLM's flavour has cpuChunkBlocks above 1");
  const { windowTokens = 0, stateGroups = 0 } = parameters;
  if (!(Number.isSafeInteger(windowTokens) && windowTokens >= 0)) {
    throw new RangeError(`windowTokens ${windowTokens} is not a whole number`);
  }
  if (!(Number.isSafeInteger(stateGroups) && stateGroups >= 0 && stateGroups <= maxStateGroups)) {
    throw new RangeError(`stateGroups ${stateGroups} is not a whole number from 0 to ${maxStateGroups}`);
  }
  if (windowTokens + stateGroups > 0 && (flavour !== "vllm" || (cpuBlocks ?? 0) > 0)) {
    throw new RangeError("only vLLM's flavour without CPU memory has windowTokens and stateGroups");
  }
  // A step without duration would stop time.
  if (parameters.stepBaseMs === 0) throw new RangeError("stepBaseMs must be above 0");
}

interface RequestSize {
  readonly id: unknown;
  readonly promptTokens: number;
  readonly outputTokens: number;
  readonly imported?: ImportedPrompt | undefined;
  readonly remote?: RemoteSource | undefined;
}

/**
 * Rejects a request that the engine could never serve.
 *
 * @throws RangeError naming the request and the limit
 */
export function checkRequest(
  { id, promptTokens, outputTokens, imported, remote }: RequestSize,
  parameters: EngineParameters,
): void {
  const { maxModelLength, blockCount, flavour, cpuBlocks = 0, cpuChunkBlocks = 1, prefixCaching } = parameters;
  const total = promptTokens + outputTokens;
  if (promptTokens === 0) throw new RangeError(`request ${id}: the prompt is empty`);
  if (!(Number.isInteger(outputTokens) && outputTokens >= 1)) {
    throw new RangeError(`request ${id}: outputTokens ${outputTokens} is not a whole number of at least 1`);
  }
  if (total > maxModelLength) {
    throw new RangeError(`request ${id}: ${total} tokens exceed maxModelLength ${maxModelLength}`);
  }
  if (mostBlocksOf(parameters, total) > blockCount)
    throw new RangeError(`request ${id}: ${total} tokens exceed all blocks`);
  if (remote && (flavour !== "vllm" || cpuBlocks === 0 || cpuChunkBlocks > 1 || !prefixCaching)) {
    throw new RangeError(
      `request ${id}: only vLLM's flavour with CPU memory in single blocks pulls from other engines`,
    );
  }
  if (remote && imported) throw new RangeError(`request ${id}: import and pull are exclusive`);
  if (!imported) return;
  const { tokens, setupMs, msPerToken } = imported;
  if (!(Number.isInteger(tokens) && tokens >= 1 && tokens <= promptTokens)) {
    throw new RangeError(`request ${id}: ${tokens} tokens to import are not 1 to ${promptTokens}`);
  }
  if (!(isDuration(setupMs) && isDuration(msPerToken))) {
    throw new RangeError(`request ${id}: setupMs ${setupMs} or msPerToken ${msPerToken} is not a duration`);
  }
}

const isDuration = (ms: number): boolean => Number.isFinite(ms) && ms >= 0;
