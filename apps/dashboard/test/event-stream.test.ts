import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { chooseSource, maxFollowed, routersToFollow } from "../src/follow/fleet-follower.ts";
import { createEventReader, maxEventLength, retryDelayMs } from "../src/follow/follower.ts";

const stream =
  ': here\n\nevent: decisions\ndata: {"a":1}\n\ndata: one\ndata:two\n\nevent: empty\n\nevent: decisions\r\ndata: x\r\n\r\n';
const expected = [
  { event: "decisions", data: '{"a":1}' },
  { event: "message", data: "one\ntwo" },
  { event: "decisions", data: "x" },
];

test("events come out the same however the stream is cut", () => {
  const random = createSeededRandom(7);
  for (let round = 0; round < 200; round++) {
    const read = createEventReader();
    const events = [];
    for (let at = 0; at < stream.length; ) {
      const length = 1 + random.integer(round % 2 === 0 ? 4 : 60);
      events.push(...read(stream.slice(at, at + length)));
      at += length;
    }
    expect(events).toEqual(expected);
  }
});

test("an event that does not end is refused", () => {
  const read = createEventReader();
  expect(read(`data: ${"x".repeat(maxEventLength - 6)}`)).toEqual([]);
  expect(() => read("x")).toThrow(RangeError);
});

test("the source stays the same as long as it lives, and is the next one that lives else", () => {
  const [a, b, c] = ["a", "b", "c"].map((origin) => ({ origin, isLive: true })) as [never, never, never];
  expect(chooseSource("b", [a, b, c])).toBe("b");
  expect(chooseSource(undefined, [a, b, c])).toBe("a");
  expect(chooseSource("b", [a, { origin: "b", isLive: false }, c])).toBe("a");
  expect(chooseSource("a", [{ origin: "a", isLive: false }])).toBeUndefined();
});

test("followed are those that are named, once, as far as the page may talk to them, and so many", () => {
  const allowed = new Set(["a", "b", "c", ...Array.from({ length: maxFollowed }, (_, at) => `r${at}`)]);
  expect(routersToFollow({ followed: ["a"], named: ["a", "b", "b", "x"], allowed })).toEqual(["b"]);
  const named = Array.from({ length: maxFollowed }, (_, at) => `r${at}`);
  expect(routersToFollow({ followed: ["a"], named, allowed })).toHaveLength(maxFollowed - 1);
  expect(routersToFollow({ followed: [...named, "a"], named: ["b"], allowed })).toEqual([]);
});

test("a router that does not answer is tried ever more rarely", () => {
  expect([1, 2, 3, 4, 5, 50].map(retryDelayMs)).toEqual([1_000, 2_000, 4_000, 8_000, 15_000, 15_000]);
});
