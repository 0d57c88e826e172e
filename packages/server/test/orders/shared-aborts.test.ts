import { asRouterId } from "@espalier/core";
import type { Note, NoteChannel } from "@espalier/shared-tree";
import { expect, test } from "vitest";
import { createSharedAborts, maxSharedRidBytes } from "../../src/orders/shared-aborts.ts";
import { maxSharedOrders } from "../../src/orders/shared-orders.ts";

/** A router whose notes reach the others when the test says so. */
function createRouter(name: string, epoch = 1) {
  const aborted: string[] = [];
  const requests = ["a-1", "a-2", "b-1", undefined];
  let onNote: (note: Note) => void = () => {};
  let written: Uint8Array | undefined;
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
  const held = {
    abort(isMeant: (rid: string | undefined) => boolean) {
      aborted.push(requests.filter(isMeant).join());
    },
  };
  const abort = createSharedAborts({ held, notes });
  const tell = (to: { hear(note: Note): void }, ageMs = 1, key = "aborts"): void => {
    if (written) to.hear({ origin: { router: asRouterId(name), epoch }, key, bytes: written, ageMs });
  };
  return { aborted, abort, tell, hear: (note: Note) => onNote(note), notes: () => written };
}

test("other routers abort the same requests, each once", () => {
  const [one, other] = [createRouter("one"), createRouter("other")];
  one.abort("a-");
  one.tell(other);
  one.tell(other);
  one.abort("");
  one.abort("b-1");
  one.tell(other, 1, "another");
  expect(other.aborted).toEqual(["a-1,a-2"]);
  one.tell(other);
  expect(other.aborted).toEqual(["a-1,a-2", "a-1,a-2,b-1,", "b-1"]);
  expect(one.aborted).toEqual(other.aborted);
});

test("what is over is not aborted again: by a router that joins, or for one that restarted", () => {
  const [one, late] = [createRouter("one"), createRouter("late")];
  one.abort("a-");
  one.tell(late, 60_000);
  one.tell(late);
  expect(late.aborted).toEqual([]);
  const again = createRouter("one", 2);
  again.abort("b-");
  again.tell(late);
  expect(late.aborted).toEqual(["b-1"]);
});

test("of many aborts the latest are told, and those with a long id are not", () => {
  const [one, other] = [createRouter("one"), createRouter("other")];
  for (let at = 0; at <= maxSharedOrders; at++) one.abort(`x${at}`);
  one.tell(other);
  expect(other.aborted).toHaveLength(maxSharedOrders);
  const before = one.notes();
  one.abort("r".repeat(maxSharedRidBytes + 1));
  expect(one.notes()).toBe(before);
  one.abort("r".repeat(maxSharedRidBytes));
  expect(one.notes()).not.toBe(before);
  expect(one.notes()!.length).toBeLessThan(16_384);
});

test("a note that is none is ignored, and without a mesh only this router is asked", () => {
  const { hear, aborted } = createRouter("one");
  hear({ origin: { router: asRouterId("two"), epoch: 1 }, key: "aborts", bytes: Uint8Array.of(9, 9), ageMs: 1 });
  expect(aborted).toEqual([]);
  const alone: string[] = [];
  createSharedAborts({ held: { abort: () => void alone.push("all") }, notes: undefined })("");
  expect(alone).toEqual(["all"]);
});
