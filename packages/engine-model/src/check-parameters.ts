import type { EngineParameters } from "./types.ts";

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
  // A step without duration would let time stand still.
  if (parameters.stepBaseMs === 0) throw new RangeError("stepBaseMs must be above 0");
}
