/** Benchmarks of the router, with their baselines. */
export {};
