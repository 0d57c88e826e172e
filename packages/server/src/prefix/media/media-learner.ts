import type { BlockDigests, Clock, Hash64, TargetIndex } from "@espalier/core";
import type { PrefixIndex } from "@espalier/prefix-index";
import { createPrefixMatches } from "@espalier/prefix-index";
import { type LearnedTarget, maxKnownTargets, type PromptLearning } from "@espalier/routing";
import type { FeedQuality } from "@espalier/shared-tree";
import type { MediaPrompt } from "@espalier/tokenizer";
import { alignMedia } from "./align-media.ts";
import { chainEnd, layOutMedia, layoutContents, type MediaLayout, type UnknownPart } from "./media-layout.ts";
import type { MediaRow, MediaRows } from "./media-rows.ts";
import type { MediaSightings } from "./media-sightings.ts";

export interface MediaLearnerOptions {
  readonly rows: MediaRows;
  readonly sightings: Pick<MediaSightings, "after">;
  readonly index: Pick<PrefixIndex, "match">;
  readonly feedQualityOf: (target: TargetIndex) => FeedQuality;
  readonly digests: BlockDigests;
  /** Tokens per block of the index. */
  readonly blockSize: number;
  readonly clock: Clock;
}

/** A prompt with images and the like, as far as its blocks are known. */
export interface ReadMedia {
  /** Digests of the blocks that the engine surely has alike. */
  readonly contents: Uint32Array;
  /** Tokens of the prompt as far as they are known. */
  readonly tokens: number;
  /** Whether the blocks are those of the whole prompt. */
  readonly isWhole: boolean;
  readonly learning: PromptLearning;
}

/** Prompts whose blocks are awaited. */
export const maxAwaited = 512;
/** Their tokens. */
export const maxAwaitedTokens = 4_194_304;
/** From an answer to when its events are expected everywhere, in milliseconds. */
const dueMs = 2_000;
/** How much earlier than the request its blocks may seem to be announced, in milliseconds. */
const slackMs = 500;
/** Predictions in a row that events contradict, before a row is dropped. */
const maxContradictions = 2;
/** Rows whose contradictions are counted. */
const maxContradicted = 1_024;

interface Awaited {
  readonly model: string;
  readonly media: MediaPrompt;
  readonly root: Hash64;
  readonly target: LearnedTarget;
  readonly engineBlockSize: number;
  readonly sentMs: number;
  readonly dueMs: number;
}

/**
 * Learns what engines make of images, audio and videos. The router that sent a prompt knows its own hash of a part; an
 * event of the target that computed it has the engine's identifier and tokens. A row that events contradict is dropped.
 */
export class MediaLearner {
  readonly #options: MediaLearnerOptions;
  readonly #matches = createPrefixMatches(maxKnownTargets);
  readonly #awaited: Awaited[] = [];
  #awaitedTokens = 0;
  /** Contradictions in a row, by model and hash. */
  readonly #contradictions = new Map<string, number>();

  constructor(options: MediaLearnerOptions) {
    this.#options = options;
  }

  /** The blocks of a prompt by what is known of its parts. */
  read(model: string, media: MediaPrompt, root: Hash64): ReadMedia {
    const { rows, digests, blockSize, clock } = this.#options;
    const layout = this.#layOut(model, media);
    for (const { hash } of layout.ranges) rows.renew(model, hash);
    const isWhole = media.isWhole && !layout.unknown;
    const engineBlockSize = layout.engineBlockSize ?? blockSize;
    const unit = isWhole ? blockSize : engineBlockSize;
    const until = Math.floor(layout.exactTokens / unit) * unit;
    const contents = layoutContents(layout, until, { blockSize, engineBlockSize }, digests);
    const readMs = clock.nowMs();
    return {
      contents,
      tokens: layout.exactTokens,
      isWhole,
      learning: {
        answered: (target, cachedTokens) => {
          // A part that was cached is not announced.
          if (layout.unknown && cachedTokens !== undefined && cachedTokens > layout.unknown.from) return;
          if (!layout.unknown && layout.ranges.length === 0) return;
          const size = layout.engineBlockSize ?? (target.blockSize || blockSize);
          this.#await({
            model,
            media,
            root,
            target,
            engineBlockSize: size,
            sentMs: readMs,
            dueMs: clock.nowMs() + dueMs,
          });
        },
      },
    };
  }

  /** Compares what was sent with what events said since. Call about once a second. */
  tick(): void {
    const nowMs = this.#options.clock.nowMs();
    let done = 0;
    for (const awaited of this.#awaited) {
      if (awaited.dueMs > nowMs) break;
      done++;
      this.#awaitedTokens -= tokensOf(awaited.media);
      this.#check(awaited);
      this.#learn(awaited);
    }
    this.#awaited.splice(0, done);
  }

  #layOut(model: string, media: MediaPrompt): MediaLayout {
    const { rows, blockSize } = this.#options;
    return layOutMedia(media, blockSize, (hash) => rows.get(model, hash));
  }

  #await(awaited: Awaited): void {
    const { blockSize, feedQualityOf } = this.#options;
    if (feedQualityOf(awaited.target.index) !== "complete" || awaited.engineBlockSize % blockSize !== 0) return;
    const tokens = tokensOf(awaited.media);
    if (this.#awaited.length >= maxAwaited || this.#awaitedTokens + tokens > maxAwaitedTokens) return;
    this.#awaited.push(awaited);
    this.#awaitedTokens += tokens;
  }

  /** Drops a row whose block is not there although the block before it is. */
  #check({ model, media, root, target, engineBlockSize }: Awaited): void {
    const { rows, digests, blockSize, index, clock, feedQualityOf } = this.#options;
    const layout = this.#layOut(model, media);
    const [first] = layout.ranges;
    if (!first || feedQualityOf(target.index) !== "complete") return;
    const unit = layout.engineBlockSize ?? engineBlockSize;
    const blocks = (Math.floor(layout.exactTokens / unit) * unit) / blockSize;
    const contents = layoutContents(layout, blocks * blockSize, { blockSize, engineBlockSize: unit }, digests);
    const chain = new Uint32Array(contents.length);
    digests.mix(root, contents, 0, blocks, chain);
    index.match(chain, blocks, clock.nowMs(), this.#matches);
    const heldTokens = (this.#matches.heldBlocks[target.index] ?? 0) * blockSize;
    for (const { hash, start, end } of layout.ranges) {
      const [from, to] = [Math.floor(start / unit) * unit, Math.ceil(end / unit) * unit];
      const key = `${model}\n${hash}`;
      if (to <= heldTokens) this.#contradictions.delete(key);
      // The blocks before the part are there, and not those of the part.
      else if (from <= heldTokens && from > 0 && to <= blocks * blockSize) {
        const contradictions = (this.#contradictions.get(key) ?? 0) + 1;
        this.#contradictions.set(key, contradictions);
        if (this.#contradictions.size > maxContradicted)
          this.#contradictions.delete(this.#contradictions.keys().next().value!);
        if (contradictions < maxContradictions) return;
        this.#contradictions.delete(key);
        rows.forget(model, hash);
        return;
      } else return;
    }
  }

  /** Learns one unknown part after the other, as long as the events of the target tell them. */
  #learn(awaited: Awaited): void {
    const { rows } = this.#options;
    const { model, media } = awaited;
    for (let left = media.parts.length; left > 0; left--) {
      const layout = this.#layOut(model, media);
      const { unknown } = layout;
      const hash = unknown && media.parts[unknown.part]?.hash;
      if (!unknown || hash === undefined) return;
      const row = this.#rowFor(awaited, layout, unknown);
      if (!row || !rows.set(model, hash, row)) return;
    }
  }

  #rowFor(awaited: Awaited, layout: MediaLayout, unknown: UnknownPart): MediaRow | undefined {
    const { sightings, digests, blockSize } = this.#options;
    const { target, root, sentMs, engineBlockSize } = awaited;
    if (layout.engineBlockSize !== undefined && layout.engineBlockSize !== engineBlockSize) return undefined;
    const found = new Map<string, MediaRow>();
    const sizes = { blockSize, engineBlockSize };
    const first = Math.floor(unknown.from / engineBlockSize) * engineBlockSize;
    for (let blockStart = first; blockStart < unknown.to; blockStart += engineBlockSize) {
      const prefix = chainEnd(root, layoutContents(layout, blockStart, sizes, digests), digests);
      for (const sighting of sightings.after(target.key, prefix, sentMs - slackMs)) {
        if (sighting.engineBlockSize !== engineBlockSize) continue;
        const row = alignMedia(layout, unknown, blockStart, sighting);
        if (
          row &&
          this.#isConfirmed(awaited, unknown, row, blockStart + sighting.blocks * engineBlockSize, sighting.chain)
        )
          found.set(JSON.stringify(row), row);
      }
    }
    const [row, ...others] = found.values();
    return others.length === 0 ? row : undefined;
  }

  /** Whether the prompt with the row has the chain of the event, as far as all parts before its end are known then. */
  #isConfirmed(
    { model, media, root, engineBlockSize }: Awaited,
    unknown: UnknownPart,
    row: MediaRow,
    end: number,
    chain: Hash64,
  ): boolean {
    const { rows, digests, blockSize } = this.#options;
    const hash = media.parts[unknown.part]?.hash;
    const layout = layOutMedia(media, blockSize, (other) => (other === hash ? row : rows.get(model, other)));
    if (end > layout.exactTokens) return layout.unknown !== undefined;
    const reached = chainEnd(root, layoutContents(layout, end, { blockSize, engineBlockSize }, digests), digests);
    return reached.low === chain.low && reached.high === chain.high;
  }
}

const tokensOf = ({ before, segments }: MediaPrompt): number =>
  segments.reduce((sum, segment) => sum + segment.length, before.contents.length / 2);
