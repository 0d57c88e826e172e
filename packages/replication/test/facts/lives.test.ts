import { createSeededRandom } from "@espalier/common";
import { describe, expect, it } from "vitest";
import { type Life, LifeOrder, lifeId, maxLivesPerTarget } from "../../src/facts/life.ts";
import { a, b, blocksOf, c, createFoldHarness, firstLife, gap, record, storing, target } from "./fold-harness.ts";
import { newestLife } from "./naive-fold.ts";

const nextLife: Life = { sequence: 0, timestampUs: 5_000, checksum: 9, predecessor: lifeId(firstLife) };

describe("lives of a target", () => {
  it("void everything of the life before in one step", () => {
    const { fold, held, changes } = createFoldHarness();
    fold.apply(a, [...storing(0, 5), gap(6, 7), ...storing(8, 9, false)]);
    fold.apply(b, storing(40, 45));
    changes.length = 0;
    fold.declare(b, 2, { target, life: nextLife });
    expect(held()).toEqual([]);
    expect(fold.byteLength).toBe(0);
    expect(fold.state(target)).toMatchObject({
      life: nextLife,
      last: undefined,
      progress: "current",
      isComplete: true,
    });
    expect(changes).toEqual([target]);
    fold.apply(a, storing(10, 12));
    fold.apply(b, [record(0, { stored: [1] }, true, 2)]);
    expect(held()).toEqual([1]);
  });

  it("does not go back to a life that a later one names, however late its clock", () => {
    const { fold, held } = createFoldHarness({ declared: [] });
    fold.declare(b, 2, { target, life: { ...nextLife, timestampUs: 10 } });
    fold.apply(b, [record(0, { stored: [1] }, true, 2)]);
    fold.declare(a, 1, { target, life: firstLife });
    fold.apply(a, storing(0, 5));
    expect(held()).toEqual([1]);
  });

  it("is the same when it is declared again, by whomever", () => {
    const { fold, held } = createFoldHarness({ declared: [a] });
    fold.apply(a, storing(0, 2));
    fold.declare(b, 17, { target, life: { ...firstLife, predecessor: "0.1.1" } });
    fold.apply(b, [record(3, { stored: [103] }, true, 17)]);
    expect(held()).toEqual(blocksOf(0, 3));
    expect(fold.state(target)?.life).toEqual({ ...firstLife, predecessor: "0.1.1" });
  });

  it("asks for the state when entries of the life were passed over before it became the newest", () => {
    const { fold, reloads } = createFoldHarness();
    const odd: Life = { sequence: 0, timestampUs: 500, checksum: 3, predecessor: null };
    fold.declare(b, 2, { target, life: odd });
    fold.apply(b, [record(0, { stored: [1] }, true, 2)]);
    expect(fold.state(target)?.life).toEqual(firstLife);
    // A life after the first one whose clock is wrong leaves the odd one the latest of those that nobody names.
    fold.declare(c, 3, { target, life: { ...nextLife, timestampUs: 400 } });
    expect(fold.state(target)?.life).toEqual(odd);
    expect(reloads).toEqual([{ target, reason: "unknown-base", from: undefined }]);
  });

  // A life that was the newest, then not, and then again, was taken to hold nothing, completely.
  it("asks for the state of a life that is the newest again, unless nothing was ever said of it", () => {
    const { fold, reloads } = createFoldHarness();
    const other: Life = { sequence: 0, timestampUs: 5_000, checksum: 7, predecessor: null };
    fold.declare(c, 3, { target, life: other });
    fold.declare(a, 4, { target, life: { ...firstLife, predecessor: lifeId(other) } });
    expect(fold.state(target)).toMatchObject({ progress: "current", isComplete: true });
    fold.apply(a, storing(0, 5));
    const third: Life = { sequence: 0, timestampUs: 6_000, checksum: 8, predecessor: null };
    fold.declare(c, 5, { target, life: third });
    expect(reloads).toEqual([]);
    fold.declare(a, 6, { target, life: { ...firstLife, predecessor: lifeId(third) } });
    const again = fold.state(target);
    expect([lifeId(again!.life!), again?.progress]).toEqual([lifeId(firstLife), "loading"]);
    expect(reloads).toEqual([{ target, reason: "unknown-base", from: undefined }]);
  });

  it("are no business of placements", () => {
    const { fold } = createFoldHarness({ declared: [] });
    fold.declare(a, 1, { target, life: null });
    fold.apply(a, storing(0, 2));
    expect(fold.state(target)).toBeUndefined();
  });

  it("are ordered by their set alone, as the definition says", () => {
    for (let seed = 0; seed < 200; seed++) {
      const random = createSeededRandom(seed);
      const lives: Life[] = [];
      for (let left = 1 + random.integer(8); left > 0; left--) {
        const before = lives[random.integer(lives.length + 1)];
        const mark = { sequence: random.integer(3), timestampUs: random.integer(4), checksum: random.integer(3) };
        lives.push({ ...mark, predecessor: before && lifeId(before) !== lifeId(mark) ? lifeId(before) : null });
      }
      const order = new LifeOrder();
      for (const life of [...lives].sort(() => random.integer(3) - 1)) order.declare(life);
      expect(order.newest?.id).toBe(lifeId(newestLife(lives)!));
    }
  });

  it("are not more than can be remembered, and the newest stays", () => {
    const order = new LifeOrder();
    let predecessor: string | null = null;
    for (let number = 0; number <= maxLivesPerTarget; number++) {
      const life: Life = { sequence: 0, timestampUs: number, checksum: 1, predecessor };
      predecessor = order.declare(life).id;
    }
    expect(order.size).toBe(maxLivesPerTarget);
    expect(order.newest?.id).toBe(predecessor);
    order.declare({ sequence: 0, timestampUs: 0, checksum: 1, predecessor: null });
    expect(order.newest?.id).toBe(predecessor);
    expect(order.size).toBe(maxLivesPerTarget);
  });

  it("survive predecessors in a circle, and more of them than honest routers name", () => {
    const order = new LifeOrder();
    const one = { sequence: 0, timestampUs: 1, checksum: 1 };
    const other = { sequence: 0, timestampUs: 2, checksum: 1 };
    order.declare({ ...one, predecessor: lifeId(other) });
    order.declare({ ...other, predecessor: lifeId(one) });
    expect(order.newest?.id).toBe(lifeId(other));
    for (let number = 0; number < 9; number++) order.declare({ ...one, predecessor: `0.${number}.0` });
    expect(order.declare({ ...one, predecessor: null }).predecessors).toHaveLength(10);
    for (let number = 0; number < 2 * maxLivesPerTarget; number++)
      order.declare({ ...one, predecessor: `0.${number}.0` });
    expect(order.declare({ ...one, predecessor: null }).predecessors).toHaveLength(maxLivesPerTarget);
  });
});

describe("targets", () => {
  it("are ignored as long as no slot is free, and folded from then on", () => {
    const { fold, slots, held } = createFoldHarness({ maxTargets: 1 });
    fold.declare(a, 2, { target: "other", life: firstLife });
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
    fold.declare(a, 1, { target, life: firstLife });
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
