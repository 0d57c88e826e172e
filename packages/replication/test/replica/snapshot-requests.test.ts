import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { type Origin, originKey } from "../../src/origin.ts";
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
        time.advance(0);
      }
    },
  };
}

describe("what is needed in one turn", () => {
  test("is asked for together, of each one that is known to have it", () => {
    const { time, requests, asked } = rigOf();
    const [a, a2, b] = [originOf("a"), originOf("a", 2), originOf("b")];
    for (const [target, from] of [
      ["t1", a],
      ["t2", b],
      ["t3", a],
      ["t4", undefined],
      ["t5", a2],
    ] as const) {
      requests.add(target, from);
    }
    expect(asked).toEqual([]);
    time.advance(0);
    expect(asked).toEqual(["t1,t3 of a@1 at 0", "t2 of b@1 at 0", "t4 of anybody at 0", "t5 of a@2 at 0"]);
  });

  test("is asked for once, however often it is told", () => {
    const { time, requests, asked } = rigOf();
    for (let times = 0; times < 3; times++) requests.add("t", originOf("a"));
    time.advance(0);
    expect(asked).toEqual(["t of a@1 at 0"]);
    expect(time.pendingCount).toBe(0);
  });

  test("what a listener adds is asked for in the next turn, and ends there", () => {
    const { time, requests, asked } = rigOf();
    let isAdded = false;
    requests.onRequest(() => {
      if (isAdded) return;
      isAdded = true;
      requests.add("more", undefined);
    });
    requests.add("t", undefined);
    time.advance(0);
    time.advance(0);
    expect(asked).toEqual(["t of anybody at 0", "more of anybody at 0"]);
  });
});

describe("what does not come", () => {
  test("is asked for every three seconds of anybody, four times in all, and then given up", () => {
    const { need, asked, givenUp, wait } = rigOf();
    need("t", originOf("a"));
    wait(11);
    expect(asked).toEqual(["t of a@1 at 0", "t of anybody at 3000", "t of anybody at 6000", "t of anybody at 9000"]);
    expect(givenUp).toEqual([]);
    wait(1);
    expect(givenUp).toEqual(["t at 12000"]);
    expect(asked).toHaveLength(4);
  });

  test("is not asked for again once it is there", () => {
    const { need, asked, givenUp, wait, loading } = rigOf();
    need("t");
    need("late");
    wait(2);
    loading.delete("t");
    wait(20);
    expect(asked[0]).toBe("t,late of anybody at 0");
    expect(asked.slice(1).every((text) => text.startsWith("late of"))).toBe(true);
    expect(givenUp).toEqual(["late at 12000"]);
  });

  test("waits without having been told of are asked for too", () => {
    const { asked, wait, loading } = rigOf();
    loading.add("t");
    wait(1);
    expect(asked).toEqual(["t of anybody at 1000"]);
  });

  test("a target that came and is needed again has all its tries again", () => {
    const { need, asked, givenUp, wait, loading } = rigOf();
    need("t");
    wait(9);
    loading.delete("t");
    wait(1);
    need("t", originOf("b"));
    wait(11);
    expect(asked.slice(4)).toEqual([
      "t of b@1 at 10000",
      "t of anybody at 13000",
      "t of anybody at 16000",
      "t of anybody at 19000",
    ]);
    expect(givenUp).toEqual([]);
  });

  // Symptom: a target that nobody could give, and that was needed again within a second, was asked for once and then
  // given up. Mechanism: how often it was asked for was forgotten only by an upkeep that saw it not loading.
  test("a target that was given up and is needed again at once has all its tries again", () => {
    const { need, asked, givenUp, wait } = rigOf();
    need("t");
    wait(12);
    expect(givenUp).toEqual(["t at 12000"]);
    need("t", originOf("b"));
    wait(11);
    expect(asked.slice(4)).toEqual([
      "t of b@1 at 12000",
      "t of anybody at 15000",
      "t of anybody at 18000",
      "t of anybody at 21000",
    ]);
    expect(givenUp).toHaveLength(1);
  });

  test("targets are given up together, each by its own count", () => {
    const { need, givenUp, wait } = rigOf();
    need("x");
    need("y");
    wait(2);
    need("z");
    wait(13);
    expect(givenUp).toEqual(["x,y at 12000", "z at 14000"]);
  });
});

test("a listener that has left is not told", () => {
  const { time, requests, asked } = rigOf();
  const told: unknown[] = [];
  const leave = requests.onRequest((request) => told.push(request));
  leave();
  requests.add("t", undefined);
  time.advance(0);
  expect([told, asked.length]).toEqual([[], 1]);
});
