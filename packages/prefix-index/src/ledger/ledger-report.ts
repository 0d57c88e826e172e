/** Counts of one batch of events, in engine blocks unless stated otherwise. */
export interface LedgerReport {
  /** Blocks stored with a known chain, including those stored before. */
  storedBlocks: number;
  /** Blocks stored under an unknown parent, for which they wait. */
  floatedBlocks: number;
  /** Waiting blocks that got their chain. */
  attachedBlocks: number;
  /** Waiting blocks that were dropped at the bound. */
  droppedBlocks: number;
  /** Blocks removed from a tier. */
  removedBlocks: number;
  /** Unknown blocks removed from a tier. Normal. */
  unknownRemovals: number;
  /** Unknown blocks moved to another tier. */
  unknownMoves: number;
  /** Blocks not stored because of the bound. */
  overflowedBlocks: number;
  /** Events ignored: of attention kinds whose blocks are no prefix, or of a group of unknown kind. */
  skippedEvents: number;
  /** Events refused: inconsistent, beyond a bound, or on an unusable feed. */
  refusedEvents: number;
}

export function createLedgerReport(): LedgerReport {
  return {
    storedBlocks: 0,
    floatedBlocks: 0,
    attachedBlocks: 0,
    droppedBlocks: 0,
    removedBlocks: 0,
    unknownRemovals: 0,
    unknownMoves: 0,
    overflowedBlocks: 0,
    skippedEvents: 0,
    refusedEvents: 0,
  };
}

export function resetLedgerReport(report: LedgerReport): void {
  Object.assign(report, zeroes);
}

const zeroes: Readonly<LedgerReport> = createLedgerReport();
