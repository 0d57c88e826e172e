import { asRouterId, createSeededRandom } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import type { Link } from "../../src/link/link.ts";
import { LinkWatch } from "../../src/membership/failure-detector.ts";
import { defaultMembershipLimits as limits } from "../../src/membership/membership.ts";
import { decodeMembership } from "../../src/membership/membership-frames.ts";
import { createProcessTime } from "../../src/membership/process-time.ts";

function setUp() {
  const time = createVirtualTime();
  const processTime = createProcessTime(time.clock, 250);
  const silent: string[] = [];
  const watch = new LinkWatch({
    clock: time.clock,
    processTime,
    random: createSeededRandom(1),
    limits,
    digest: () => 77,
    silent: (link) => {
      silent.push(link.peer.origin.router);
      watch.remove(link);
    },
    probed: () => {},
  });
  const linkTo = (name: string) => {
    const kinds: string[] = [];
    const link = {
      peer: { origin: { router: asRouterId(name), epoch: 1 } },
      roundTripMs: Number.NaN,
      send: (_: string, frame: Uint8Array) => kinds.push(decodeMembership(frame).kind) > 0,
    } as unknown as Link;
    watch.add(link);
    return { link, kinds };
  };
  const run = (durationMs: number, each: () => void = () => {}): void => {
    for (let passedMs = 0; passedMs < durationMs; passedMs += limits.tickMs) {
      time.advance(limits.tickMs);
      processTime.tick();
      each();
      watch.tick(1);
    }
  };
  return { time, processTime, watch, silent, linkTo, run };
}

const count = (kinds: readonly string[], kind: string): number => kinds.filter((each) => each === kind).length;

test("a new link is pinged at once; a silent one every 500 ms until it is ended", () => {
  const { linkTo, run, silent } = setUp();
  const { kinds } = linkTo("p");
  expect(kinds).toEqual(["ping"]);
  run(limits.silentMs - 50);
  expect(count(kinds, "ping")).toBe(1 + 3);
  expect(silent).toEqual([]);
  run(100);
  expect(silent).toEqual(["p"]);
  run(5_000);
  expect(count(kinds, "ping")).toBe(1 + 3);
});

test("a busy link is pinged every second", () => {
  const { linkTo, run, watch, silent } = setUp();
  const { link, kinds } = linkTo("p");
  run(10_000, () => watch.heard(link));
  expect(count(kinds, "ping")).toBe(1 + 10);
  expect(silent).toEqual([]);
});

test("a stop of the process is no silence of its peers", () => {
  const { linkTo, run, silent, time } = setUp();
  linkTo("p");
  run(500);
  time.advance(30_000);
  run(limits.silentMs - 500 - 350);
  expect(silent).toEqual([]);
  run(500);
  expect(silent).toEqual(["p"]);
});

test("nobody is asked twice in one silence, nor by somebody who is silent too", () => {
  const { linkTo, run, watch } = setUp();
  const talker = linkTo("talker");
  const [one, two] = [linkTo("one"), linkTo("two")];
  run(1_600, () => watch.heard(talker.link));
  expect(count(talker.kinds, "probe")).toBe(2);
  // When the first of the two is found silent, the second has not been yet.
  expect(count(one.kinds, "probe") + count(two.kinds, "probe")).toBe(1);
  watch.heard(one.link);
  run(1_000, () => watch.heard(talker.link));
  expect(count(talker.kinds, "probe")).toBe(3);
});

test("an answer that no ping asked for measures nothing, and one of an ended link counts for nothing", () => {
  const { linkTo, watch, time } = setUp();
  const { link } = linkTo("p");
  time.advance(3);
  watch.acknowledged(link, 99);
  expect(link.roundTripMs).toBeNaN();
  watch.acknowledged(link, 1);
  expect(link.roundTripMs).toBe(3);
  const replaced = linkTo("p");
  watch.acknowledged(link, 2);
  watch.remove(link);
  watch.acknowledged(replaced.link, 1);
  expect(replaced.link.roundTripMs).toBe(0);
});
