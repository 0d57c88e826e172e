/**
 * The fewest kinds of faults with which a run still fails, found by leaving one out after the other. With few enough
 * kinds any one of them can no longer be left out.
 *
 * @param fails runs it; called at most n (n + 1) / 2 times for n kinds
 */
export async function shrinkKinds<Kind>(
  kinds: readonly Kind[],
  fails: (kinds: readonly Kind[]) => Promise<boolean>,
): Promise<readonly Kind[]> {
  let left = kinds;
  for (let isShorter = true; isShorter; ) {
    isShorter = false;
    for (const kind of left) {
      const without = left.filter((other) => other !== kind);
      if (!(await fails(without))) continue;
      left = without;
      isShorter = true;
    }
  }
  return left;
}
