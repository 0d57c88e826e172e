import type { Clock } from "@espalier/core";
import { type BlockHasher, chainRoot, createBlockHasher, createHasherDigests } from "@espalier/core";
import { createEventDecoder } from "@espalier/engine-model/kv-events";
import { createPrefixIndex, FeedLedger, type LedgerSink, type PrefixIndex, tier } from "@espalier/prefix-index";
import { blockSize, type EventTraffic, type FeedMessage } from "./events-traffic.ts";

/**
 * Ingests traffic as a router does: bytes to columns, columns to one ledger per feed, ledgers to one index. Filling up
 * is not timed.
 *
 * @returns milliseconds for the steady messages
 * @throws Error when the index does not end with as many blocks as the engines have
 */
export function ingestMs(traffic: EventTraffic, clock: Clock): number {
  const decoder = createEventDecoder();
  const hasher = createBlockHasher();
  const index = createPrefixIndex();
  const ledgers: FeedLedger[] = [];
  const take = ({ feed, payload }: FeedMessage): void => {
    decoder.decode(payload);
    ledgers[feed]!.apply(decoder.batch);
  };
  for (let feed = 0; feed < traffic.feeds; feed++) ledgers.push(ledgerInto(index, feed, hasher));
  traffic.warmUp.forEach(take);
  const startMs = clock.nowMs();
  traffic.steady.forEach(take);
  const tookMs = clock.nowMs() - startMs;
  for (let feed = 0; feed < traffic.feeds; feed++) {
    const blocks = index.factBlockCount(feed, tier.gpu);
    if (blocks !== traffic.liveBlocks) throw new Error(`feed ${feed} ends with ${blocks} blocks`);
  }
  return tookMs;
}

function ledgerInto(index: PrefixIndex, target: number, hasher: BlockHasher): FeedLedger {
  const root = chainRoot({ seed: "bench", model: "bench", blockSize, unit: "tokens" });
  const sink: LedgerSink = {
    stored: (inTier, words, from, to) => index.storeFacts(target, inTier, words, from, to),
    removed: (inTier, words, from, to) => index.removeFacts(target, inTier, words, from, to),
    orphaned: (inTier, words, at, depth) => index.removeOrphan(target, inTier, words, { index: at, depth }),
    holeGone: (_inTier, words, at) => index.forgetOrphan(target, words, at),
    cleared: () => index.clearFacts(target),
  };
  return new FeedLedger({ blockSize, digests: createHasherDigests({ hasher, root: () => root }), sink });
}
