/** Errors of a sample are relative to its expected value plus this. */
export const errorFloorMs = 10;
/** A sample counts as off by at most this factor. */
export const outlierBound = 3;
/** Logarithm up to which an error is taken for chance; beyond it samples pull no harder (Huber's loss). */
const usualError = 0.25;

/** How a sample counts, given its time relative to the expected one. */
export function boundError(ratio: number): { readonly ratio: number; readonly weight: number } {
  const bounded = Math.min(outlierBound, Math.max(1 / outlierBound, ratio));
  return { ratio: bounded, weight: Math.min(1, usualError / Math.abs(Math.log(bounded))) };
}
