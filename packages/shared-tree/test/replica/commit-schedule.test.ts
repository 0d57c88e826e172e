import { createSeededRandom } from "@espalier/core";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { type CommitSchedule, createCommitSchedule } from "../../src/replica/replica.ts";

interface Rig {
  readonly time: VirtualTime;
  readonly schedule: CommitSchedule;
  /** When it was committed. */
  readonly commits: number[];
}

function rigOf(tickMs = 15, during: (rig: Rig) => void = () => {}): Rig {
  const time = createVirtualTime();
  const commits: number[] = [];
  const schedule = createCommitSchedule({
    ...{ clock: time.clock, scheduler: time.scheduler, tickMs },
    commit: () => {
      commits.push(time.clock.nowMs());
      during(rig);
    },
  });
  const rig = { time, schedule, commits };
  return rig;
}

test("after quiet a commit follows at once, but not before the turn has ended", () => {
  const { time, schedule, commits } = rigOf();
  for (let change = 0; change < 5; change++) schedule.touch();
  expect(commits).toEqual([]);
  time.advance(0);
  expect(commits).toEqual([0]);
});

test("what comes within a tick of a commit waits for its end, all together", () => {
  const { time, schedule, commits } = rigOf();
  schedule.touch();
  time.advance(4);
  schedule.touch();
  time.advance(4);
  schedule.touch();
  time.advance(6.5);
  expect(commits).toEqual([0]);
  time.advance(0.5);
  expect(commits).toEqual([0, 15]);
});

test("after exactly a tick it is quiet again", () => {
  const { time, schedule, commits } = rigOf();
  schedule.touch();
  time.advance(15);
  schedule.touch();
  time.advance(0);
  expect(commits).toEqual([0, 15]);
});

test("nothing pending is never committed, however long it is quiet", () => {
  const { time, commits } = rigOf();
  time.advance(60_000);
  expect([commits, time.pendingCount]).toEqual([[], 0]);
});

test("what is touched by a commit is committed a tick after it, once", () => {
  const { time, schedule, commits } = rigOf(15, (rig) => {
    if (rig.commits.length < 4) rig.schedule.touch();
  });
  schedule.touch();
  time.advance(1_000);
  expect(commits).toEqual([0, 15, 30, 45]);
});

test("a stop takes back what was to come; a later touch begins anew", () => {
  const { time, schedule, commits } = rigOf();
  schedule.touch();
  schedule.stop();
  time.advance(100);
  expect([commits, time.pendingCount]).toEqual([[], 0]);
  schedule.stop();
  schedule.touch();
  time.advance(0);
  expect(commits).toEqual([100]);
});

test("a commit that fails does not end the schedule", () => {
  let isBroken = true;
  const { time, schedule, commits } = rigOf(15, () => {
    if (isBroken) throw new Error("no room");
  });
  schedule.touch();
  expect(() => time.advance(0)).toThrow("no room");
  isBroken = false;
  schedule.touch();
  time.advance(15);
  expect(commits).toEqual([0, 15]);
});

test.each([1, 2, 3, 4])("commits are never closer than a tick, and no touch waits longer than one, seed %i", (seed) => {
  const random = createSeededRandom(seed);
  const tickMs = 1 + random.integer(20);
  const { time, schedule, commits } = rigOf(tickMs);
  let touchedMs: number | undefined;
  let seen = 0;
  for (let step = 0; step < 500; step++) {
    if (random.integer(3) === 0) {
      schedule.touch();
      touchedMs ??= time.clock.nowMs();
    }
    time.advance(random.integer(8) === 0 ? random.integer(50) : 1);
    if (commits.length > seen) {
      expect(commits.at(-1)! - touchedMs!).toBeLessThanOrEqual(tickMs);
      touchedMs = undefined;
    } else if (touchedMs !== undefined) expect(time.clock.nowMs() - touchedMs).toBeLessThan(tickMs);
    seen = commits.length;
  }
  for (let at = 1; at < commits.length; at++) {
    expect(commits[at]! - commits[at - 1]!).toBeGreaterThanOrEqual(tickMs);
  }
});
