import {
  asTargetIndex,
  chainRoot,
  createBlockHasher,
  createHasherDigests,
  type Hash64,
  hashOf,
  type TargetIndex,
} from "@espalier/core";
import { createEventDecoder, encodeEventMessage, type WireEvent } from "@espalier/engine-model/kv-events";
import { createPrefixIndex, createPrefixMatches, FeedLedger, tier } from "@espalier/prefix-index";
import { createLocalBindings } from "@espalier/routing";
import { createVirtualTime } from "@espalier/testing";
import type { MediaPrompt } from "@espalier/tokenizer";
import { MediaLearner } from "../../../src/prefix/media/media-learner.ts";
import { createMediaRows } from "../../../src/prefix/media/media-rows.ts";
import { createMediaSightings } from "../../../src/prefix/media/media-sightings.ts";

export const target: TargetIndex = asTargetIndex(0);
const key = "engine/0";
const model = "tiny";

/** What a prompt's text is made of: tokens, and hashes of images. */
export type Piece = number | string;

/** One engine with its feed, and a router that learns from it. */
export function createMediaRig(blockSize: number, engineBlockSize = blockSize) {
  const time = createVirtualTime();
  const { clock } = time;
  const rootOf = (cacheSalt: string | undefined): Hash64 =>
    chainRoot({ seed: "", adapter: undefined, cacheSalt, blockSize, unit: "tokens" });
  const digests = createHasherDigests({ hasher: createBlockHasher(), root: (_, salt) => rootOf(salt) });
  const index = createPrefixIndex({ maxTargets: 4_096 });
  const matches = createPrefixMatches(4_096);
  const ledger = new FeedLedger({
    blockSize,
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
  const store = createLocalBindings(clock);
  const rows = createMediaRows(store);
  const sightings = createMediaSightings(store, clock);
  const options = { rows, sightings, index, digests, blockSize, clock };
  const learner = new MediaLearner({ ...options, feedQualityOf: () => "complete" });
  const decoder = createEventDecoder();
  return {
    ...{ time, clock, digests, ledger, store, rows, sightings, learner, rootOf, model, key },
    /** Whether the router knows all images of a prompt, and the cached tokens that it expects. */
    read(media: MediaPrompt, salt?: string) {
      const read = learner.read(model, media, rootOf(salt));
      const chain = new Uint32Array(read.contents.length);
      digests.mix(rootOf(salt), read.contents, 0, chain.length / 2, chain);
      index.match(chain, chain.length / 2, clock.nowMs(), matches);
      return { ...read, matched: matches.gpuBlocks[target]! * blockSize };
    },
    /** The prompt as the template writes it, one token for each image. */
    mediaOf(pieces: readonly Piece[], placeholder: number, width = 1): MediaPrompt {
      const segments: number[][] = [[]];
      const parts: { hash: string; width: number }[] = [];
      for (const piece of pieces) {
        if (typeof piece === "number") segments.at(-1)!.push(piece);
        else {
          segments.at(-1)!.push(placeholder);
          segments.push([]);
          parts.push({ hash: piece, width });
        }
      }
      const first = Uint32Array.from(segments[0]!);
      const full = Math.max(0, first.length - 1 - ((first.length - 1) % blockSize));
      const contents = new Uint32Array((2 * full) / blockSize);
      digests.contents(first, 0, full, blockSize, contents);
      return {
        before: { tokenCount: full, contents, leftover: new Uint32Array(0) },
        segments: [first.subarray(full), ...segments.slice(1).map((segment) => Uint32Array.from(segment))],
        parts,
        isWhole: true,
      };
    },
    /** An event of the engine for the full blocks of a prompt. Each image has its placeholder so many times. */
    announce(pieces: readonly Piece[], { placeholder = 7, length = 5, salt }: AnnounceOptions = {}): void {
      const tokens: number[] = [];
      const ranges: { identifier: string; start: number }[] = [];
      for (const piece of pieces) {
        if (typeof piece === "number") tokens.push(piece);
        else {
          ranges.push({ identifier: `id of ${piece}`, start: tokens.length });
          for (let at = 0; at < length; at++) tokens.push(placeholder);
        }
      }
      const blocks = Math.floor(tokens.length / engineBlockSize);
      const inputs = Array.from({ length: blocks }, (_, block) => {
        const start = block * engineBlockSize;
        const inside = ranges.filter((one) => one.start < start + engineBlockSize && one.start + length > start);
        return inside.map((one) => [one.identifier, one.start - start] as const);
      });
      let name = hashName(`${salt}`, 0n);
      const names = inputs.map((keys, block) => {
        name = hashName(`${tokens.slice(block * engineBlockSize, (block + 1) * engineBlockSize)} ${keys}`, name);
        return name;
      });
      const event: WireEvent = {
        ...{ type: "stored", hashes: names, parentHash: undefined, blockSize: engineBlockSize, adapter: undefined },
        ...{ tokens: Uint32Array.from(tokens.slice(0, blocks * engineBlockSize)), cacheSalt: salt, inputs },
      };
      decoder.decode(encodeEventMessage([event], "vllm-0.32", { timestampS: 1, rank: 0 }));
      ledger.apply(decoder.batch);
      sightings.note(key, decoder.batch, ledger, digests);
    },
    /** The answer of a prompt that was read has come, and so has the time to learn from it. */
    answered(read: ReturnType<MediaLearner["read"]>, cachedTokens?: number): void {
      read.learning.answered({ index: target, key, blockSize: engineBlockSize }, cachedTokens);
      time.advance(2_000);
      learner.tick();
    },
  };
}

interface AnnounceOptions {
  readonly placeholder?: number;
  readonly length?: number;
  readonly salt?: string;
}

function hashName(text: string, parent: bigint): bigint {
  const { low, high } = hashOf(`${parent} ${text}`);
  return (BigInt(high >>> 0) << 32n) | BigInt(low >>> 0);
}
