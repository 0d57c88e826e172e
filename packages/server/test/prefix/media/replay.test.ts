import { readdirSync, readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { asTargetIndex, chainRoot, createBlockHasher, createHasherDigests, type JsonObject } from "@espalier/core";
import { createEventDecoder } from "@espalier/engine-model/kv-events";
import { createPrefixIndex, createPrefixMatches, FeedLedger, tier } from "@espalier/prefix-index";
import { createLocalBindings } from "@espalier/routing";
import { createVirtualTime } from "@espalier/testing";
import type { MediaPrompt } from "@espalier/tokenizer";
import { describe, expect, test } from "vitest";
import { MediaLearner } from "../../../src/prefix/media/media-learner.ts";
import { createMediaRows } from "../../../src/prefix/media/media-rows.ts";
import { createMediaSightings } from "../../../src/prefix/media/media-sightings.ts";

/** What `capture.py` of test/conformance/media writes after its header: events of a request precede it. */
interface CaptureLine {
  readonly events?: string;
  readonly request?: {
    readonly phase: string;
    readonly body: JsonObject & { readonly messages: readonly { readonly content: unknown }[] };
    readonly status?: number;
    readonly prompt: readonly number[];
    readonly cached_tokens: number;
  };
}

const folder = new URL("../../../../../test/conformance/media/captures/", import.meta.url);
const blockSize = 32;
const seed = "captures";
const target = asTargetIndex(0);
const key = "engine/0";

/** What stands for a part in the engine's prompts. */
interface Placeholders {
  readonly ids: readonly number[];
  /** Of one part, where two may touch. */
  readonly length: number;
  /** Special tokens that the template writes around one. */
  readonly around: number;
}

interface Outcome {
  readonly phase: string;
  readonly images: number;
  readonly isKnown: boolean;
  readonly predicted: number;
  readonly reported: number;
}

function createReplay() {
  const time = createVirtualTime();
  const { clock } = time;
  const rootOf = (cacheSalt: string | undefined) =>
    chainRoot({ seed, adapter: undefined, cacheSalt, blockSize, unit: "tokens" });
  const digests = createHasherDigests({ hasher: createBlockHasher(), root: (_, salt) => rootOf(salt) });
  const index = createPrefixIndex({ maxTargets: 4_096 });
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
  const learner = new MediaLearner({
    ...{ rows, sightings, index, digests, blockSize, clock },
    feedQualityOf: () => "complete",
  });
  const decoder = createEventDecoder();
  const matches = createPrefixMatches(4_096);
  return {
    rows,
    /** The prompt as the template writes it: one placeholder for each part, between its `around` other tokens. */
    mediaOf(prompt: readonly number[], parts: readonly string[], { ids, length, around }: Placeholders): MediaPrompt {
      const segments: Uint32Array[] = [];
      let open: number[] = [];
      for (let at = 0; at < prompt.length; at++) {
        const token = prompt[at]!;
        open.push(token);
        if (!ids.includes(token)) continue;
        for (let count = 1; count < length && prompt[at + 1] === token; count++) at++;
        if (around > 0) open.push(prompt[++at]!);
        segments.push(Uint32Array.from(open));
        open = [];
      }
      segments.push(Uint32Array.from(open));
      const first = segments[0]!;
      const text = first.length - 1 - around;
      const full = text - (text % blockSize);
      const contents = new Uint32Array((2 * full) / blockSize);
      digests.contents(first, 0, full, blockSize, contents);
      segments[0] = first.subarray(full);
      return {
        before: { tokenCount: full, contents, leftover: new Uint32Array(0) },
        segments,
        parts: parts.map((hash) => ({ hash, width: 1 + around })),
        isWhole: true,
      };
    },
    read(media: MediaPrompt, salt: string | undefined) {
      const read = learner.read("tiny", media, rootOf(salt));
      const chain = new Uint32Array(read.contents.length);
      digests.mix(rootOf(salt), read.contents, 0, chain.length / 2, chain);
      index.match(chain, chain.length / 2, clock.nowMs(), matches);
      return { ...read, matched: matches.gpuBlocks[target]! * blockSize };
    },
    apply(payload: Uint8Array) {
      expect(decoder.decode(payload).refused).toBeUndefined();
      ledger.apply(decoder.batch);
      sightings.note(key, decoder.batch, ledger, digests);
    },
    learn() {
      time.advance(3_000);
      learner.tick();
    },
  };
}

/** What identifies a part for the engine; the router's own hash is tested with the tokenizer. */
function identityOf(part: JsonObject, body: JsonObject): string {
  const { url } = (part.image_url ?? part.video_url ?? {}) as JsonObject;
  return part.uuid ? `uuid ${part.uuid}` : `${String(url)} ${JSON.stringify(body.mm_processor_kwargs ?? null)}`;
}

function replay(name: string) {
  const [header, ...lines] = gunzipSync(readFileSync(new URL(name, folder)))
    .toString()
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as CaptureLine & { readonly config?: JsonObject });
  const config = header!.config as Record<string, number | undefined>;
  const {
    image_token_index: placeholder,
    image_seq_length: perImage,
    image_token_id: image,
    video_token_id: film,
  } = config;
  const placeholders: Placeholders = {
    ids: [placeholder, image, film].filter((id) => id !== undefined),
    length: perImage ?? Number.POSITIVE_INFINITY,
    around: placeholder === undefined ? 2 : 0,
  };
  const router = createReplay();
  const outcomes: Outcome[] = [];
  let waiting: Uint8Array[] = [];
  for (const { events, request } of lines) {
    if (events !== undefined) waiting.push(Buffer.from(events, "base64"));
    if (!request || request.status !== undefined) continue;
    const { phase, body, prompt, cached_tokens: reported } = request;
    const content = body.messages.flatMap((message) => (Array.isArray(message.content) ? message.content : []));
    const parts = (content as JsonObject[]).filter(({ type }) => type === "image_url" || type === "video_url");
    const media = router.mediaOf(
      prompt,
      parts.map((part) => identityOf(part, body)),
      placeholders,
    );
    const { isWhole, matched, learning } = router.read(media, body.cache_salt as string | undefined);
    // The engine always computes the last token.
    const predicted = Math.min(matched, Math.floor((prompt.length - 1) / blockSize) * blockSize);
    outcomes.push({ phase, images: parts.length, isKnown: isWhole, predicted, reported });
    for (const payload of waiting.splice(0)) router.apply(payload);
    learning.answered({ index: target, key, blockSize }, reported);
    router.learn();
  }
  waiting = [];
  return outcomes;
}

describe.each(readdirSync(folder).filter((name) => name.endsWith(".gz")))("%s", (name) => {
  const outcomes = replay(name);

  test("what is predicted of prompts with known images is what vLLM reported", () => {
    const known = outcomes.filter(({ isKnown, images }) => isKnown && images > 0);
    expect(known.filter(({ predicted, reported }) => predicted !== reported)).toEqual([]);
    // Nearly every image is known from the second time on.
    expect(known.length).toBeGreaterThan(30);
    expect(known.filter(({ reported }) => reported > 0).length).toBeGreaterThan(20);
  });

  test("no prompt is predicted to hit more than it does", () => {
    expect(outcomes.filter(({ predicted, reported }) => predicted > reported)).toEqual([]);
  });
});
