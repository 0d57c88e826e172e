import type { EngineParameters } from "./types.ts";

/** 32 bytes are kept of each. */
export const maxCpuBlocks = 16_777_216;

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
  // A step without duration would let time stand still.
  if (parameters.stepBaseMs === 0) throw new RangeError("stepBaseMs must be above 0");
}
