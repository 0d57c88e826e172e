/** Counts of one batch of events, in engine blocks unless stated otherwise. */
export type LedgerReport = ReturnType<typeof createLedgerReport>;

export function createLedgerReport() {
  return {
    /** Blocks stored with a known chain, including those stored before. */
    storedBlocks: 0,
    /** Blocks stored under an unknown parent, for which they wait. */
    floatedBlocks: 0,
    /** Waiting blocks that got their chain. */
    attachedBlocks: 0,
    /** Waiting blocks that were dropped at the bound. */
    droppedBlocks: 0,
    /** Blocks removed from a tier. */
    removedBlocks: 0,
    /** Unknown blocks removed from a tier. Normal. */
    unknownRemovals: 0,
    /** Unknown blocks moved to another tier. */
    unknownMoves: 0,
    /** Blocks not stored because of the bound. */
    overflowedBlocks: 0,
    /** Events ignored: of attention kinds whose blocks are no prefix, or of a group of unknown kind. */
    skippedEvents: 0,
    /** Events refused: inconsistent, beyond a bound, or on an unusable feed. */
    refusedEvents: 0,
  };
}

export function resetLedgerReport(report: LedgerReport): void {
  Object.assign(report, zeroes);
}

const zeroes: Readonly<LedgerReport> = createLedgerReport();
