/** Results and failures of the last while, in constant memory. */
export interface ResultWindow {
  readonly results: number;
  readonly failures: number;
  add(nowMs: number, failed: boolean): void;
  clear(): void;
}

/** The window slides by tenths of itself. */
const bucketCount = 10;

/** @param windowMs how far back results count */
export function createResultWindow(windowMs: number): ResultWindow {
  const bucketMs = windowMs / bucketCount;
  const resultsOf = new Uint32Array(bucketCount);
  const failuresOf = new Uint32Array(bucketCount);
  let newest = 0;
  let results = 0;
  let failures = 0;

  const slideTo = (bucket: number): void => {
    for (let passed = Math.max(newest, bucket - bucketCount) + 1; passed <= bucket; passed++) {
      const slot = passed % bucketCount;
      results -= resultsOf[slot]!;
      failures -= failuresOf[slot]!;
      resultsOf[slot] = 0;
      failuresOf[slot] = 0;
    }
    newest = Math.max(newest, bucket);
  };

  return {
    get results() {
      return results;
    },
    get failures() {
      return failures;
    },
    add(nowMs, failed) {
      slideTo(Math.floor(nowMs / bucketMs));
      const slot = newest % bucketCount;
      resultsOf[slot]! += 1;
      results += 1;
      if (!failed) return;
      failuresOf[slot]! += 1;
      failures += 1;
    },
    clear() {
      resultsOf.fill(0);
      failuresOf.fill(0);
      results = 0;
      failures = 0;
    },
  };
}
