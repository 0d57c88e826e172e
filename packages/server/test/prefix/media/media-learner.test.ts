import { describe, expect, test } from "vitest";
import { maxAwaited, maxAwaitedTokens } from "../../../src/prefix/media/media-learner.ts";
import { createMediaRig, type Piece, target } from "./media-rig.ts";

const text = (from: number, count: number): Piece[] => Array.from({ length: count }, (_, at) => from + at);
const placeholder = 7;

/** Sends a prompt, whose blocks the engine announces, and lets the router learn. */
function send(rig: ReturnType<typeof createMediaRig>, pieces: readonly Piece[], more: { salt?: string } = {}): void {
  const read = rig.read(rig.mediaOf(pieces, placeholder), more.salt);
  rig.announce(pieces, more);
  rig.answered(read, read.matched);
}

describe("learning an image", () => {
  test.each([
    [4, 4],
    [4, 8],
    [4, 16],
  ])("makes every prompt with it exact, router blocks of %d and engine blocks of %d tokens", (block, engineBlock) => {
    const before = text(100, 21);
    for (let shift = 0; shift < engineBlock; shift++) {
      const rig = createMediaRig(block, engineBlock);
      const pieces = [...before.slice(shift), "a", ...text(200, 40)];
      expect(rig.read(rig.mediaOf(pieces, placeholder)).isWhole).toBe(false);
      send(rig, pieces);
      const known = rig.read(rig.mediaOf(pieces, placeholder));
      const tokens = pieces.length + 4;
      expect([known.isWhole, known.tokens], `shift ${shift}`).toEqual([true, tokens]);
      expect(known.matched).toBe(Math.floor(tokens / engineBlock) * engineBlock);
      // At every other place in a block.
      for (let at = 1; at < engineBlock; at++) {
        const moved = [...text(300, at), "a", ...text(400, 30)];
        rig.announce(moved);
        const length = moved.length + 4;
        expect(rig.read(rig.mediaOf(moved, placeholder)).matched).toBe(Math.floor(length / engineBlock) * engineBlock);
      }
    }
  });

  test("several in one prompt, in one block and the same one twice", () => {
    const rig = createMediaRig(16);
    const pieces = [...text(100, 3), "a", 50, "b", ...text(200, 9), "a", ...text(300, 20)];
    send(rig, pieces);
    expect(rig.read(rig.mediaOf(pieces, placeholder))).toMatchObject({ isWhole: true, matched: 48 });
    const swapped = [...text(100, 3), "b", 50, "a", ...text(200, 9), "a", ...text(300, 20)];
    expect(rig.read(rig.mediaOf(swapped, placeholder))).toMatchObject({ isWhole: true, matched: 0 });
  });

  test("an unknown second image ends what is known", () => {
    const rig = createMediaRig(4);
    send(rig, [...text(100, 8), "a", ...text(200, 20)]);
    const pieces = [...text(100, 8), "a", ...text(200, 6), "b", ...text(300, 9)];
    expect(rig.read(rig.mediaOf(pieces, placeholder))).toMatchObject({ isWhole: false, tokens: 19, matched: 16 });
  });

  test("tenants share what is known of it, and no hit", () => {
    const rig = createMediaRig(4);
    const pieces = ["a", ...text(200, 20)];
    send(rig, pieces, { salt: "one" });
    expect(rig.read(rig.mediaOf(pieces, placeholder), "one")).toMatchObject({ isWhole: true, matched: 24 });
    expect(rig.read(rig.mediaOf(pieces, placeholder), "two")).toMatchObject({ isWhole: true, matched: 0 });
  });
});

describe("an image is not learned", () => {
  test("when another one behind the same prefix, with the same question, was announced too", () => {
    const rig = createMediaRig(4);
    const [one, two] = ["a", "b"].map((image) => [...text(100, 8), image, ...text(200, 20)]) as [Piece[], Piece[]];
    const read = rig.read(rig.mediaOf(one, placeholder));
    rig.announce(two);
    rig.announce(one);
    rig.answered(read);
    expect(rig.rows.get(rig.model, "a")).toBeUndefined();
  });

  test("from the blocks of another question, of an earlier time, or when it was cached", () => {
    const rig = createMediaRig(4);
    const pieces = [...text(100, 8), "a", ...text(200, 20)];
    const other = rig.read(rig.mediaOf(pieces, placeholder));
    rig.announce([...text(100, 8), "b", ...text(200, 12), ...text(500, 8)]);
    rig.answered(other);
    expect(rig.rows.get(rig.model, "a")).toBeUndefined();

    rig.announce([...text(100, 8), "a", ...text(200, 20)]);
    rig.time.advance(1_000);
    rig.answered(rig.read(rig.mediaOf(pieces, placeholder)));
    expect(rig.rows.get(rig.model, "a")).toBeUndefined();

    const cached = rig.read(rig.mediaOf(pieces, placeholder));
    rig.announce(pieces);
    rig.answered(cached, 20);
    expect(rig.rows.get(rig.model, "a")).toBeUndefined();
  });

  test("when its end could be at several places", () => {
    const rig = createMediaRig(4);
    // What follows it is the placeholder itself.
    const pieces = [...text(100, 8), "a", ...Array<number>(8).fill(placeholder)];
    send(rig, pieces);
    expect(rig.rows.get(rig.model, "a")).toBeUndefined();
  });
});

test("a row that events contradict twice in a row is dropped, and learned anew", () => {
  const rig = createMediaRig(4);
  const pieces = [...text(100, 8), "a", ...text(200, 20)];
  const wrong = { identifier: "id of b", back: 1, engineBlockSize: 4, runs: [placeholder, 5] };
  rig.rows.set(rig.model, "a", wrong);
  const sendAgain = (): void => {
    const read = rig.read(rig.mediaOf(pieces, placeholder));
    rig.announce(pieces);
    rig.answered(read, 0);
  };
  sendAgain();
  expect(rig.rows.get(rig.model, "a")).toEqual(wrong);
  sendAgain();
  expect(rig.rows.get(rig.model, "a")).toEqual({ ...wrong, identifier: "id of a" });
});

test("prompts are awaited up to a number and a size of all", () => {
  /** Whether the last of some prompts is learned. */
  const isLearned = (sizes: readonly number[]): boolean => {
    const rig = createMediaRig(4);
    const last = sizes.length - 1;
    for (const [at, size] of sizes.entries()) {
      const pieces = [...text(1_000 * at, 4), `image ${at}`, ...text(9, 8)];
      const media = rig.mediaOf(pieces, placeholder);
      const read = rig.read({ ...media, segments: [...media.segments, new Uint32Array(size)] });
      read.learning.answered({ index: target, key: rig.key, blockSize: 4 }, 0);
      if (at === last) rig.announce(pieces);
    }
    rig.time.advance(2_000);
    rig.learner.tick();
    return rig.rows.get(rig.model, `image ${last}`) !== undefined;
  };
  const none = (count: number): readonly number[] => Array<number>(count).fill(0);
  expect([isLearned(none(maxAwaited)), isLearned(none(maxAwaited + 1))]).toEqual([true, false]);
  // Each prompt has ten more: a block, the placeholder and eight.
  expect(isLearned([maxAwaitedTokens - 20, 0])).toBe(true);
  expect(isLearned([maxAwaitedTokens - 19, 0])).toBe(false);
});
