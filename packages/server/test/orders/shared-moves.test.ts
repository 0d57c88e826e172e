/** An operator drains an engine at one router, and all routers move its streams. */
import { asRouterId } from "@espalier/core";
import type { Note, NoteChannel } from "@espalier/shared-tree";
import { createRecordingLogger } from "@espalier/testing";
import { expect, test } from "vitest";
import { createSharedMoves } from "../../src/orders/shared-moves.ts";
import { MovableStreams } from "../../src/request/movable-streams.ts";

function createRouter() {
  let written: Uint8Array | undefined;
  let onNote: (note: Note) => void = () => {};
  const notes: NoteChannel = {
    post(_key, bytes) {
      written = bytes;
      return true;
    },
    onNote(listener) {
      onNote = listener;
      return () => {};
    },
  };
  const streams = new MovableStreams();
  const drained: string[] = [];
  const logger = createRecordingLogger();
  const setDraining = (id: string): boolean => drained.push(id) > 0;
  const move = createSharedMoves({ streams, fleet: { setDraining }, notes, logger });
  const hear = (bytes: Uint8Array): void =>
    onNote({ origin: { router: asRouterId("one"), epoch: 1 }, key: "moves", bytes, ageMs: 1 });
  return { streams, move, hear, drained, lines: logger.lines, written: () => written };
}

const streamAt = (engineId: string, moves = true) => {
  const stream = { engineId, asked: 0, move: () => ++stream.asked > 0 && moves };
  return stream;
};

test("the streams of one engine move at every router, once it is drained there", () => {
  const [one, other] = [createRouter(), createRouter()];
  const streams = [streamAt("a"), streamAt("b"), streamAt("a", false)];
  for (const stream of streams) other.streams.add(stream);
  const ended = streamAt("a");
  other.streams.add(ended);
  other.streams.delete(ended);
  one.move("a");
  other.hear(one.written()!);
  other.hear(one.written()!);
  expect([one.drained, other.drained]).toEqual([["a"], ["a"]]);
  expect(streams.map(({ asked }) => asked)).toEqual([1, 0, 1]);
  expect(ended.asked).toBe(0);
  expect(other.lines.map(({ fields }) => fields)).toEqual([{ engine: "a", moved: 1, stay: 1 }]);
});

test("an engine with an id of more than 250 bytes is drained here only", () => {
  const { move, written, drained } = createRouter();
  move("e".repeat(251));
  expect(written()).toBeUndefined();
  move("e".repeat(250));
  expect(written()).toBeDefined();
  expect(drained).toHaveLength(2);
});
