import { chainRoot, createBlockHasher, createHasherDigests } from "@espalier/core";
import { createEventDecoder } from "@espalier/engine-model/kv-events";
import type { EngineSignals } from "@espalier/engines";
import { createPrefixIndex, createPrefixMatches, FeedLedger, tier } from "@espalier/prefix-index";
import { isTooFewToLoad } from "@espalier/routing";

/** The namespace of a prompt's blocks. */
interface PromptSpace {
  readonly adapter: string | undefined;
  readonly cacheSalt: string | undefined;
}

interface MatchedTokens {
  readonly usable: number;
  /** Those of `usable` that are not on the GPU. */
  readonly fetched: number;
  /** With those after the last point at which a hybrid model can resume. */
  readonly held: number;
}

/** What one engine (one rank, one epoch) holds according to its events, as the router computes it. */
export interface EventFold {
  /** Applies one message. */
  apply(payload: Uint8Array): void;
  /** Messages that were rejected or had unusable events. */
  readonly undecoded: number;
  /** Cached tokens at the start of a prompt, in any tier, in whole blocks, never including the last token. */
  match(tokens: Uint32Array, space: PromptSpace): MatchedTokens;
  /** Equal for every fold with the same blocks. */
  readonly digest: string;
}

const seed = "captures";
const target = 0;
const neverMs = 0;

interface EventFoldOptions {
  /** See `FeedLedgerOptions`. */
  readonly chunkTokens?: number | undefined;
  /** The kind of engine. */
  readonly dialect?: EngineSignals["dialect"];
}

/** @param blockSize tokens per block, in engine and index */
export function createEventFold(blockSize: number, { chunkTokens, dialect }: EventFoldOptions = {}): EventFold {
  const decoder = createEventDecoder();
  const index = createPrefixIndex({ maxTargets: 1 });
  const matches = createPrefixMatches(1);
  const rootOf = ({ adapter, cacheSalt }: PromptSpace) =>
    chainRoot({ seed, adapter, cacheSalt, blockSize, unit: "tokens" });
  const digests = createHasherDigests({
    hasher: createBlockHasher(),
    root: (adapter, cacheSalt) => rootOf({ adapter, cacheSalt }),
  });
  const ledger = new FeedLedger({
    blockSize,
    ...(chunkTokens === undefined ? {} : { chunkTokens }),
    digests,
    sink: {
      stored: (inTier, words, from, to) => index.storeFacts(target, inTier, words, from, to),
      removed: (inTier, words, from, to) => index.removeFacts(target, inTier, words, from, to),
      orphaned: (inTier, words, at, depth) => index.removeOrphan(target, inTier, words, { index: at, depth }),
      holeGone: (inTier, words, at) => {
        if (inTier === tier.gpu) index.forgetOrphan(target, words, at);
      },
      cleared: () => index.clearFacts(target),
    },
  });
  let undecoded = 0;
  return {
    apply(payload) {
      const { refused, unknownEvents, malformedEvents } = decoder.decode(payload);
      if (refused !== undefined || unknownEvents + malformedEvents > 0) undecoded++;
      if (refused !== undefined) return;
      ledger.apply(decoder.batch);
    },
    get undecoded() {
      return undecoded;
    },
    match(tokens, space) {
      const blocks = Math.floor((tokens.length - 1) / blockSize);
      if (blocks <= 0) return { usable: 0, fetched: 0, held: 0 };
      const contents = new Uint32Array(2 * blocks);
      const chain = new Uint32Array(2 * blocks);
      digests.contents(tokens, 0, blocks * blockSize, blockSize, contents);
      digests.mix(rootOf(space), contents, 0, blocks, chain);
      index.match(chain, blocks, neverMs, matches);
      const { factBlocks, gpuBlocks, tierBlocks, heldBlocks } = matches;
      const onGpu = gpuBlocks[target]! + tierBlocks[tier.gpu]![target]!;
      const beyond = (factBlocks[target]! - onGpu) * blockSize;
      const fetched = isTooFewToLoad(dialect, beyond) ? 0 : beyond;
      return {
        usable: onGpu * blockSize + fetched,
        fetched,
        held: heldBlocks[target]! * blockSize,
      };
    },
    get digest() {
      return index.digest(target).join(" ");
    },
  };
}
