import { type Origin, originKey, type SnapshotSink } from "@espalier/mesh";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { createSnapshotRequests, type SnapshotRequests } from "../../src/replica/snapshot-requests.ts";

import { originOf } from "../documents/journal-fixtures.ts";

interface Rig {
  readonly time: VirtualTime;
  readonly requests: SnapshotRequests;
  /** `targets from whom`, and when. */
  readonly asked: string[];
  readonly givenUp: string[];
  /** Targets that wait for their state. */
  readonly loading: Set<string>;
  need(target: string, from?: Origin): void;
  /** Upkeep once a second, for so long. */
  wait(seconds: number): void;
}

function rigOf(): Rig {
  const time = createVirtualTime();
  const asked: string[] = [];
  const givenUp: string[] = [];
  const loading = new Set<string>();
  const requests = createSnapshotRequests({
    ...{ clock: time.clock, scheduler: time.scheduler },
    isLoading: (target) => loading.has(target),
    onGivenUp: (targets) => {
      givenUp.push(`${targets.join()} at ${time.clock.nowMs()}`);
      for (const target of targets) loading.delete(target);
    },
  });
  requests.onRequest(({ targets, from }) => {
    asked.push(`${targets?.join()} of ${from ? originKey(from) : "anybody"} at ${time.clock.nowMs()}`);
  });
  return {
    ...{ time, requests, asked, givenUp, loading },
    need(target, from) {
      loading.add(target);
      requests.add(target, from);
    },
    wait(seconds) {
      for (let second = 0; second < seconds; second++) {
        time.advance(1_000);
        requests.retry([...loading]);
      }
    },
  };
}

/** What is needed within so long is asked for together. */
const gatherMs = 50;

describe("what is needed at about the same time", () => {
  test("is asked for together, of each one that is known to have it", () => {
    const { time, need, asked } = rigOf();
    const [a, a2, b] = [originOf("a"), originOf("a", 2), originOf("b")];
    need("t1", a);
    need("t2", b);
    time.advance(gatherMs - 1);
    for (const [target, from] of [
      ["t3", a],
      ["t4", undefined],
      ["t5", a2],
    ] as const)
      need(target, from);
    expect(asked).toEqual([]);
    time.advance(1);
    expect(asked).toEqual(["t1,t3 of a@1 at 50", "t2 of b@1 at 50", "t4 of anybody at 50", "t5 of a@2 at 50"]);
    expect(time.pendingCount).toBe(0);
  });

  test("is asked for once, however often it is told", () => {
    const { time, need, asked } = rigOf();
    for (let times = 0; times < 3; times++) need("t", originOf("a"));
    time.advance(gatherMs);
    expect(asked).toEqual(["t of a@1 at 50"]);
  });

  test("is not asked for where it has come by then", () => {
    const { time, need, asked, loading } = rigOf();
    need("t", originOf("a"));
    need("u", originOf("a"));
    need("v", originOf("b"));
    for (const target of ["t", "v"]) loading.delete(target);
    time.advance(gatherMs);
    expect(asked).toEqual(["u of a@1 at 50"]);
  });

  test("what a listener adds is asked for the next time, and ends there", () => {
    const { time, requests, need, asked } = rigOf();
    let isAdded = false;
    requests.onRequest(() => {
      if (isAdded) return;
      isAdded = true;
      need("more");
    });
    need("t");
    time.advance(10 * gatherMs);
    expect(asked).toEqual(["t of anybody at 50", "more of anybody at 100"]);
  });
});

/** One that brings nothing. */
const snapshot: SnapshotSink = { frame: () => {}, end: () => [], abort: () => {} };

describe("while a snapshot comes in", () => {
  test("nothing is asked for nor given up, and after it what it has not brought", () => {
    const { requests, need, asked, givenUp, wait, loading } = rigOf();
    const sink = requests.importing(snapshot);
    need("t");
    need("u");
    wait(60);
    expect([asked, givenUp]).toEqual([[], []]);
    loading.delete("t");
    sink.end();
    wait(1);
    expect(asked).toEqual(["u of anybody at 60050"]);
  });

  /** The end of a snapshot that could not be taken was not counted: nothing was asked for ever again. */
  test("its end counts if what it brought cannot be taken", () => {
    const { requests, need, asked, wait } = rigOf();
    const sink = requests.importing({
      ...snapshot,
      end() {
        throw new Error("defect");
      },
    });
    need("t");
    expect(() => sink.end()).toThrow("defect");
    wait(1);
    expect(asked).toHaveLength(1);
  });

  test("what was to be asked for as it began waits too", () => {
    const { time, requests, need, asked } = rigOf();
    need("t");
    time.advance(gatherMs - 1);
    const sink = requests.importing(snapshot);
    time.advance(1_000);
    expect(asked).toEqual([]);
    sink.end();
    time.advance(gatherMs);
    expect(asked).toEqual(["t of anybody at 1099"]);
  });

  test("of two that come in at a time the end of the later one counts", () => {
    const { requests, need, asked, wait } = rigOf();
    const [one, other] = [requests.importing(snapshot), requests.importing(snapshot)];
    need("t");
    one.end();
    one.abort();
    wait(3);
    expect(asked).toEqual([]);
    other.abort();
    wait(1);
    expect(asked).toHaveLength(1);
  });

  test("the time until it is asked for again begins with its end", () => {
    const { requests, need, asked, wait } = rigOf();
    need("t", originOf("a"));
    wait(4);
    const sink = requests.importing(snapshot);
    wait(4);
    sink.end();
    wait(5);
    expect(asked).toHaveLength(1);
    wait(1);
    expect(asked).toEqual(["t of a@1 at 50", "t of anybody at 13050"]);
  });
});

describe("what does not come", () => {
  test("is asked for every five seconds of anybody, four times in all, and then given up", () => {
    const { need, asked, givenUp, wait } = rigOf();
    need("t", originOf("a"));
    wait(19);
    expect(asked).toEqual(["t of a@1 at 50", "t of anybody at 5050", "t of anybody at 10050", "t of anybody at 15050"]);
    expect(givenUp).toEqual([]);
    wait(1);
    expect(givenUp).toEqual(["t at 20000"]);
    expect(asked).toHaveLength(4);
  });

  test("is not asked for again once it is there", () => {
    const { need, asked, givenUp, wait, loading } = rigOf();
    need("t");
    need("late");
    wait(2);
    loading.delete("t");
    wait(20);
    expect(asked[0]).toBe("t,late of anybody at 50");
    expect(asked.slice(1).every((text) => text.startsWith("late of"))).toBe(true);
    expect(givenUp).toEqual(["late at 20000"]);
  });

  test("waits without having been told of are asked for too", () => {
    const { asked, wait, loading } = rigOf();
    loading.add("t");
    wait(2);
    expect(asked).toEqual(["t of anybody at 1050"]);
  });

  // Symptom: a target that nobody could give, and that was needed again within a second, was asked for once and then
  // given up. Mechanism: how often it was asked for was forgotten only by an upkeep that saw it not loading.
  test.each<[string, number]>([
    ["came", 9],
    ["was given up", 20],
  ])("a target that %s and is needed again has all its tries again", (_what, seconds) => {
    const { need, asked, givenUp, wait, loading } = rigOf();
    need("t");
    wait(seconds);
    const before = [asked.length, givenUp.length] as const;
    if (seconds < 20) {
      loading.delete("t");
      wait(1);
    }
    need("t", originOf("b"));
    wait(19);
    expect(asked.slice(before[0]).map((text) => text.split(" at")[0])).toEqual([
      "t of b@1",
      "t of anybody",
      "t of anybody",
      "t of anybody",
    ]);
    expect(givenUp).toHaveLength(before[1]);
  });

  test("targets are given up together, each by its own count", () => {
    const { need, givenUp, wait } = rigOf();
    need("x");
    need("y");
    wait(2);
    need("z");
    wait(20);
    expect(givenUp).toEqual(["x,y at 20000", "z at 22000"]);
  });
});

test("a listener that has left is not told", () => {
  const { time, requests, need, asked } = rigOf();
  const reported: unknown[] = [];
  const leave = requests.onRequest((request) => reported.push(request));
  leave();
  need("t");
  time.advance(gatherMs);
  expect([reported, asked.length]).toEqual([[], 1]);
});
