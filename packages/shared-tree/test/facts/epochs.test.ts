import { createSeededRandom } from "@espalier/core";
import { describe, expect, it } from "vitest";
import { type EngineEpoch, EpochOrder, epochId, maxEpochsPerTarget } from "../../src/facts/engine-epoch.ts";
import { a, b, blocksOf, c, createFoldHarness, firstEpoch, gap, record, storing, target } from "./fold-harness.ts";
import { newestEpoch } from "./naive-fold.ts";

const nextEpoch: EngineEpoch = { sequence: 0, timestampUs: 5_000, checksum: 9, predecessor: epochId(firstEpoch) };

describe("epochs of a target", () => {
  it("void everything of the epoch before in one step", () => {
    const { fold, held, changes } = createFoldHarness();
    fold.apply(a, [...storing(0, 5), gap(6, 7), ...storing(8, 9, false)]);
    fold.apply(b, storing(40, 45));
    changes.length = 0;
    fold.declare(b, 2, { target, epoch: nextEpoch });
    expect(held()).toEqual([]);
    expect(fold.byteLength).toBe(0);
    expect(fold.state(target)).toMatchObject({
      epoch: nextEpoch,
      last: undefined,
      progress: "current",
      isComplete: true,
    });
    expect(changes).toEqual([target]);
    fold.apply(a, storing(10, 12));
    fold.apply(b, [record(0, { stored: [1] }, true, 2)]);
    expect(held()).toEqual([1]);
  });

  it("does not go back to an epoch that a later one names, however late its clock", () => {
    const { fold, held } = createFoldHarness({ declared: [] });
    fold.declare(b, 2, { target, epoch: { ...nextEpoch, timestampUs: 10 } });
    fold.apply(b, [record(0, { stored: [1] }, true, 2)]);
    fold.declare(a, 1, { target, epoch: firstEpoch });
    fold.apply(a, storing(0, 5));
    expect(held()).toEqual([1]);
  });

  it("is the same when it is declared again, by whomever", () => {
    const { fold, held } = createFoldHarness({ declared: [a] });
    fold.apply(a, storing(0, 2));
    fold.declare(b, 17, { target, epoch: { ...firstEpoch, predecessor: "0.1.1" } });
    fold.apply(b, [record(3, { stored: [103] }, true, 17)]);
    expect(held()).toEqual(blocksOf(0, 3));
    expect(fold.state(target)?.epoch).toEqual({ ...firstEpoch, predecessor: "0.1.1" });
  });

  it("asks for the state when entries of the epoch were passed over before it became the newest", () => {
    const { fold, reloads } = createFoldHarness();
    const odd: EngineEpoch = { sequence: 0, timestampUs: 500, checksum: 3, predecessor: null };
    fold.declare(b, 2, { target, epoch: odd });
    fold.apply(b, [record(0, { stored: [1] }, true, 2)]);
    expect(fold.state(target)?.epoch).toEqual(firstEpoch);
    // An epoch after the first one whose clock is wrong leaves the odd one the latest of those that nobody names.
    fold.declare(c, 3, { target, epoch: { ...nextEpoch, timestampUs: 400 } });
    expect(fold.state(target)?.epoch).toEqual(odd);
    expect(reloads).toEqual([{ target, reason: "unknown-base", from: undefined }]);
  });

  // An epoch that was the newest, then not, and then again, was taken to hold nothing, completely.
  it("asks for the state of an epoch that is the newest again, unless nothing was ever said of it", () => {
    const { fold, reloads } = createFoldHarness();
    const other: EngineEpoch = { sequence: 0, timestampUs: 5_000, checksum: 7, predecessor: null };
    fold.declare(c, 3, { target, epoch: other });
    fold.declare(a, 4, { target, epoch: { ...firstEpoch, predecessor: epochId(other) } });
    expect(fold.state(target)).toMatchObject({ progress: "current", isComplete: true });
    fold.apply(a, storing(0, 5));
    const third: EngineEpoch = { sequence: 0, timestampUs: 6_000, checksum: 8, predecessor: null };
    fold.declare(c, 5, { target, epoch: third });
    expect(reloads).toEqual([]);
    fold.declare(a, 6, { target, epoch: { ...firstEpoch, predecessor: epochId(third) } });
    const again = fold.state(target);
    expect([epochId(again!.epoch!), again?.progress]).toEqual([epochId(firstEpoch), "loading"]);
    expect(reloads).toEqual([{ target, reason: "unknown-base", from: undefined }]);
  });

  it("are no business of placements", () => {
    const { fold } = createFoldHarness({ declared: [] });
    fold.declare(a, 1, { target, epoch: null });
    fold.apply(a, storing(0, 2));
    expect(fold.state(target)).toBeUndefined();
  });

  it("are ordered by their set alone, as the definition says", () => {
    for (let seed = 0; seed < 200; seed++) {
      const random = createSeededRandom(seed);
      const epochs: EngineEpoch[] = [];
      for (let left = 1 + random.integer(8); left > 0; left--) {
        const before = epochs[random.integer(epochs.length + 1)];
        const mark = { sequence: random.integer(3), timestampUs: random.integer(4), checksum: random.integer(3) };
        epochs.push({ ...mark, predecessor: before && epochId(before) !== epochId(mark) ? epochId(before) : null });
      }
      const order = new EpochOrder();
      for (const epoch of [...epochs].sort(() => random.integer(3) - 1)) order.declare(epoch);
      expect(order.newest?.id).toBe(epochId(newestEpoch(epochs)!));
    }
  });

  it("are not more than can be remembered, and the newest stays", () => {
    const order = new EpochOrder();
    let predecessor: string | null = null;
    for (let number = 0; number <= maxEpochsPerTarget; number++) {
      const epoch: EngineEpoch = { sequence: 0, timestampUs: number, checksum: 1, predecessor };
      predecessor = order.declare(epoch).id;
    }
    expect(order.size).toBe(maxEpochsPerTarget);
    expect(order.newest?.id).toBe(predecessor);
    order.declare({ sequence: 0, timestampUs: 0, checksum: 1, predecessor: null });
    expect(order.newest?.id).toBe(predecessor);
    expect(order.size).toBe(maxEpochsPerTarget);
  });

  it("survive predecessors in a circle, and more of them than honest routers name", () => {
    const order = new EpochOrder();
    const one = { sequence: 0, timestampUs: 1, checksum: 1 };
    const other = { sequence: 0, timestampUs: 2, checksum: 1 };
    order.declare({ ...one, predecessor: epochId(other) });
    order.declare({ ...other, predecessor: epochId(one) });
    expect(order.newest?.id).toBe(epochId(other));
    for (let number = 0; number < 9; number++) order.declare({ ...one, predecessor: `0.${number}.0` });
    expect(order.declare({ ...one, predecessor: null }).predecessors).toHaveLength(10);
    for (let number = 0; number < 2 * maxEpochsPerTarget; number++)
      order.declare({ ...one, predecessor: `0.${number}.0` });
    expect(order.declare({ ...one, predecessor: null }).predecessors).toHaveLength(maxEpochsPerTarget);
  });
});

describe("targets", () => {
  it("are ignored as long as no slot is free, and folded from then on", () => {
    const { fold, slots, held } = createFoldHarness({ maxTargets: 1 });
    fold.declare(a, 2, { target: "other", epoch: firstEpoch });
    fold.apply(a, [record(0, { stored: [1] }, true, 2)]);
    expect(fold.state("other")).toBeUndefined();
    fold.forgetTarget(target);
    slots.release(target);
    fold.apply(a, [record(0, { stored: [1] }, true, 2)]);
    expect(held("other")).toEqual([1]);
  });

  it("are forgotten with all they held, until they are declared again", () => {
    const { fold, held } = createFoldHarness();
    fold.apply(a, [...storing(0, 3), ...storing(6, 8)]);
    fold.forgetTarget(target);
    expect([...fold.states()]).toEqual([]);
    expect(held()).toEqual([]);
    expect(fold.byteLength).toBe(0);
    fold.apply(a, storing(4, 4));
    expect([...fold.states()]).toEqual([]);
    fold.declare(a, 1, { target, epoch: firstEpoch });
    fold.apply(a, storing(0, 1));
    expect(held()).toEqual([100, 101]);
  });

  it("keep what a dead writer has said, and what of it still waits", () => {
    const { fold, held } = createFoldHarness();
    fold.apply(a, [...storing(0, 3), ...storing(6, 8)]);
    fold.forgetOrigin(a);
    fold.apply(a, storing(4, 5));
    expect(held()).toEqual(blocksOf(0, 3));
    fold.apply(b, storing(4, 5));
    expect(held()).toEqual(blocksOf(0, 8));
  });
});
