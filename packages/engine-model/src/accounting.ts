/** What an engine counts over its life. */
export interface Accounting {
  steps: number;
  busyMs: number;
  promptTokens: number;
  generatedTokens: number;
  prefixQueries: number;
  prefixHits: number;
  importedTokens: number;
  loadedTokens: number;
  preemptions: number;
  finished: number;
  adapterLoads: number;
}

export function createAccounting(): Accounting {
  return {
    steps: 0,
    busyMs: 0,
    promptTokens: 0,
    generatedTokens: 0,
    prefixQueries: 0,
    prefixHits: 0,
    importedTokens: 0,
    loadedTokens: 0,
    preemptions: 0,
    finished: 0,
    adapterLoads: 0,
  };
}
