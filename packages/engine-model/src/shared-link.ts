/** The outgoing link of one engine, with transfers that share its bandwidth. */
export interface SharedLink<Flow> {
  /** Begins a transfer of `bytes` bytes, at least 1, to one of the engines. Ends before `nowMs` must have been taken. */
  start(flow: Flow, transfer: { readonly to: string; readonly bytes: number }, nowMs: number): void;
  /** Stops a transfer; unknown ones are ignored. */
  stop(flow: Flow, nowMs: number): void;
  /** When the next transfer ends; undefined without one. */
  nextEndMs(): number | undefined;
  /** Removes the transfers that end next, in the order in which they began. */
  takeEnded(): readonly Flow[];
  readonly size: () => number;
}

export interface LinkRates {
  /** What the engine sends in all. */
  readonly bytesPerSecond: number;
  /** What it sends to one engine. */
  readonly pairBytesPerSecond: number;
}

interface Transfer {
  readonly to: string;
  leftBytes: number;
  bytesPerMs: number;
  endMs: number;
}

/**
 * Transfers share bandwidth max-min fairly, like flows of one congestion control: all get the same, except that those to
 * one engine together get at most the bandwidth of the pair, and what they leave goes to the others. Rates change
 * whenever a transfer begins or ends. Each such moment takes time in proportion to the transfers.
 */
export function createSharedLink<Flow>({ bytesPerSecond, pairBytesPerSecond }: LinkRates): SharedLink<Flow> {
  const transfers = new Map<Flow, Transfer>();
  let settledMs = 0;
  let nextMs: number | undefined;

  const settle = (nowMs: number): void => {
    for (const transfer of transfers.values()) transfer.leftBytes -= transfer.bytesPerMs * (nowMs - settledMs);
    settledMs = nowMs;
  };
  const share = (): void => {
    const rates = fairRates(transfers.values(), bytesPerSecond / 1_000, pairBytesPerSecond / 1_000);
    nextMs = undefined;
    for (const transfer of transfers.values()) {
      transfer.bytesPerMs = rates.get(transfer.to)!;
      transfer.endMs = settledMs + Math.max(0, transfer.leftBytes) / transfer.bytesPerMs;
      if (nextMs === undefined || transfer.endMs < nextMs) nextMs = transfer.endMs;
    }
  };
  return {
    size: () => transfers.size,
    start(flow, { to, bytes }, nowMs) {
      settle(nowMs);
      transfers.set(flow, { to, leftBytes: bytes, bytesPerMs: 0, endMs: 0 });
      share();
    },
    stop(flow, nowMs) {
      if (!transfers.has(flow)) return;
      settle(nowMs);
      transfers.delete(flow);
      share();
    },
    nextEndMs: () => nextMs,
    takeEnded() {
      const endMs = nextMs;
      if (endMs === undefined) return [];
      const ended: Flow[] = [];
      for (const [flow, transfer] of transfers) if (transfer.endMs === endMs) ended.push(flow);
      settle(endMs);
      for (const flow of ended) transfers.delete(flow);
      share();
      return ended;
    },
  };
}

/** What one transfer to each engine gets: the engines with most transfers meet the limit of their pair first. */
function fairRates(transfers: Iterable<Transfer>, total: number, pair: number): Map<string, number> {
  const counts = new Map<string, number>();
  let flows = 0;
  for (const { to } of transfers) {
    counts.set(to, (counts.get(to) ?? 0) + 1);
    flows++;
  }
  const rates = new Map<string, number>();
  let left = total;
  for (const [to, count] of [...counts].sort(([, a], [, b]) => b - a)) {
    const rate = Math.min(pair / count, left / flows);
    rates.set(to, rate);
    left -= rate * count;
    flows -= count;
  }
  return rates;
}
