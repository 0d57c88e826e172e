import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { withinBudget } from "../../src/modes/prompt-view.ts";

interface Rig {
  readonly time: ReturnType<typeof createVirtualTime>;
  readonly result: Promise<string>;
  readonly finish: (value: string) => void;
  readonly fail: (error: Error) => void;
  readonly askedMeanwhile: () => number;
}

function rig(budgetMs: number): Rig {
  const time = createVirtualTime();
  let asked = 0;
  let finish: (value: string) => void = () => undefined;
  let fail: (error: Error) => void = () => undefined;
  const work = new Promise<string>((resolve, reject) => {
    finish = resolve;
    fail = reject;
  });
  const meanwhile = (): string => `meanwhile ${++asked}`;
  const result = withinBudget(work, { scheduler: time.scheduler, budgetMs, meanwhile });
  return { time, result, finish, fail, askedMeanwhile: () => asked };
}

describe("work within a budget", () => {
  test("that is done in time is what it comes to, and no timer is left", async () => {
    const { time, result, finish, askedMeanwhile } = rig(5);
    time.advance(4);
    finish("done");
    expect(await result).toBe("done");
    await time.advanceAsync(0);
    expect([time.pendingCount, askedMeanwhile()]).toEqual([0, 0]);
  });

  test("that is not is what there is meanwhile, asked for once and when time is up", async () => {
    const { time, result, finish, askedMeanwhile } = rig(5);
    time.advance(4);
    expect(askedMeanwhile()).toBe(0);
    time.advance(1);
    expect(await result).toBe("meanwhile 1");
    finish("late");
    await time.advanceAsync(100);
    expect([await result, askedMeanwhile()]).toEqual(["meanwhile 1", 1]);
  });

  test("that fails in time fails, and no timer is left", async () => {
    const { time, result, fail } = rig(5);
    fail(new Error("no"));
    await expect(result).rejects.toThrow("no");
    await time.advanceAsync(0);
    expect(time.pendingCount).toBe(0);
  });

  test("that fails later has been given up", async () => {
    const { time, result, fail } = rig(5);
    time.advance(5);
    fail(new Error("late"));
    expect(await result).toBe("meanwhile 1");
  });

  test("of nothing is what there is at the next turn, unless it is done already", async () => {
    const waiting = rig(0);
    waiting.time.advance(0);
    expect(await waiting.result).toBe("meanwhile 1");
    const done = rig(0);
    done.finish("done");
    expect(await done.result).toBe("done");
  });
});
