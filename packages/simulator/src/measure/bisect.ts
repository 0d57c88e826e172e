/** The first of the numbers from `from` to below `to` that is not held, or `to`; none is held after one that is not. */
export function firstNotHeld(from: number, to: number, isHeld: (number: number) => boolean): number {
  let low = from;
  let high = to;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (isHeld(middle)) low = middle + 1;
    else high = middle;
  }
  return low;
}
