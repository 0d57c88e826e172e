/** What became of prompts that were computed elsewhere. */
export interface ImportTallies {
  /** Requests whose blocks are being fetched or waited for. */
  fetching: number;
  /** Requests that got blocks, and the tokens of those. */
  imported: number;
  importedTokens: number;
  /** Requests whose blocks were for another prompt from some token on. */
  mismatched: number;
  /** Requests whose blocks did not come: those that were computed here instead, and those that failed. */
  recomputed: number;
  failed: number;
  /** Requests that ended with `cache_threshold`. */
  belowThreshold: number;
}

export function createImportTallies(): ImportTallies {
  return {
    fetching: 0,
    imported: 0,
    importedTokens: 0,
    mismatched: 0,
    recomputed: 0,
    failed: 0,
    belowThreshold: 0,
  };
}
