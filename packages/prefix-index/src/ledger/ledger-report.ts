/** What came of a batch of events, in engine blocks unless it says otherwise. */
export interface LedgerReport {
  /** Blocks stored whose chain is known, those that were known before too. */
  storedBlocks: number;
  /** Blocks stored under a parent that is not known: they wait for it. */
  floatedBlocks: number;
  /** Blocks that waited, and got their chain. */
  attachedBlocks: number;
  /** Blocks that waited, and were dropped to make room. */
  droppedBlocks: number;
  /** Blocks removed from a tier. */
  removedBlocks: number;
  /** Blocks removed from a tier that were not there, as far as known. Normal. */
  unknownRemovals: number;
  /** Blocks said to be in another tier, without tokens, that are not known. */
  unknownMoves: number;
  /** Blocks not stored because there are as many as allowed. */
  overflowedBlocks: number;
  /** Events left out: of kinds of attention whose blocks are no prefix, or of a group that is not known to be of another. */
  skippedEvents: number;
  /** Events left out because they contradict themselves, are beyond a bound, or came on a feed that is unusable. */
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
