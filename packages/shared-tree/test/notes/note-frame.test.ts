import { asRouterId, createSeededRandom, EspalierError } from "@espalier/core";
import { describe, expect, test } from "vitest";
import {
  maxFrameNotes,
  maxNoteBytes,
  maxNoteFrameBytes,
  type NoteFrame,
  readNoteFrame,
  splitNotes,
  type WrittenNote,
  writeNoteFrame,
} from "../../src/notes/note-frame.ts";

const origin = { router: asRouterId("a"), epoch: 1_700_000_000_000 };
const noteOf = (change: Partial<WrittenNote> = {}): WrittenNote => ({
  ...{ key: "times/llama", counter: 3, ageMs: 20, bytes: Uint8Array.of(1, 2, 3) },
  ...change,
});

function anyFrame(seed: number): NoteFrame {
  const random = createSeededRandom(seed);
  const notes = Array.from({ length: random.integer(6) }, () => ({
    key: "ü".repeat(random.integer(100)),
    counter: random.integer(2 ** 32),
    ageMs: random.integer(2 ** 31),
    bytes: Uint8Array.from({ length: random.integer(300) }, () => random.integer(256)),
  }));
  return { origin: { router: asRouterId(`router-${seed}`), epoch: random.integer(2 ** 32) }, notes };
}

describe("a frame of notes", () => {
  test("is read as it was written", () => {
    for (let seed = 0; seed < 100; seed++)
      expect(readNoteFrame(writeNoteFrame(anyFrame(seed)))).toEqual(anyFrame(seed));
  });

  test("tells ages in whole milliseconds, none younger than it is", () => {
    const frame = writeNoteFrame({ origin, notes: [noteOf({ ageMs: 20.1 })] });
    expect(readNoteFrame(frame).notes[0]?.ageMs).toBe(21);
  });

  test("of a later version may have more behind it", () => {
    const frame = { origin, notes: [noteOf()] };
    expect(readNoteFrame(Uint8Array.of(...writeNoteFrame(frame), 9, 9))).toEqual(frame);
  });

  test.each<[string, () => Uint8Array]>([
    ["nothing", () => new Uint8Array()],
    ["another kind", () => Uint8Array.of(2, ...writeNoteFrame({ origin, notes: [] }).slice(1))],
    ["a router without a name", () => writeNoteFrame({ origin: { router: asRouterId(""), epoch: 1 }, notes: [] })],
    ["a key that is too long", () => writeNoteFrame({ origin, notes: [noteOf({ key: "k".repeat(256) })] })],
    [
      "a note that is too long",
      () => writeNoteFrame({ origin, notes: [noteOf({ bytes: new Uint8Array(maxNoteBytes + 1) })] }),
    ],
    [
      "one note too many",
      () => writeNoteFrame({ origin, notes: Array.from({ length: maxFrameNotes + 1 }, () => noteOf()) }),
    ],
    ["one byte too many", () => new Uint8Array(maxNoteFrameBytes + 1).fill(1)],
  ])("with %s is refused", (_, bytes) => {
    expect(() => readNoteFrame(bytes())).toThrow(EspalierError);
  });

  test("cut short is refused, wherever that is", () => {
    const frame = writeNoteFrame({ origin, notes: [noteOf(), noteOf({ key: "x" })] });
    for (let length = 0; length < frame.length; length++) {
      expect(() => readNoteFrame(frame.slice(0, length)), `${length} bytes`).toThrow(EspalierError);
    }
  });

  test("of any bytes is read, or refused as invalid", () => {
    const random = createSeededRandom(6);
    for (let round = 0; round < 2_000; round++) {
      const bytes = Uint8Array.from({ length: 1 + random.integer(40) }, () => random.integer(256));
      bytes[0] = 1;
      try {
        readNoteFrame(bytes);
      } catch (error) {
        expect((error as EspalierError).code).toBe("mesh_frame_invalid");
      }
    }
  });
});

describe("notes cut into frames", () => {
  test("fit, keep their order, and none is left out", () => {
    for (let seed = 0; seed < 30; seed++) {
      const random = createSeededRandom(seed);
      const notes = Array.from({ length: random.integer(600) }, (_, at) =>
        noteOf({
          counter: at,
          key: "€".repeat(random.integer(85)),
          bytes: new Uint8Array(random.integer(8) === 0 ? maxNoteBytes : 50),
        }),
      );
      const lists = splitNotes(notes);
      expect(lists.flat()).toEqual(notes);
      for (const list of lists) {
        expect(list.length).toBeLessThanOrEqual(maxFrameNotes);
        expect(writeNoteFrame({ origin, notes: list }).length).toBeLessThanOrEqual(maxNoteFrameBytes);
      }
    }
  });

  test("are none where there are none", () => {
    expect(splitNotes([])).toEqual([]);
  });
});
