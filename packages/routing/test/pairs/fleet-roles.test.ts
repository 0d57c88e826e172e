/** Routers weigh the work of all of them, and come to the same number of engines that compute prompts. */
import { asRouterId, createSeededRandom, type EngineRole } from "@espalier/core";
import type { Note, NoteChannel } from "@espalier/shared-tree";
import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { noTransfers, prefillCountHoldMs, splitThreshold, type TransferSums } from "../../src/disaggregation/index.ts";
import {
  createFleetRoles,
  type ModelRoles,
  maxRoleModels,
  maxRoleRouters,
  readRoleNote,
  writeRoleNote,
} from "../../src/pairs/fleet-roles.ts";

const nothingMoved = { sums: noTransfers, ageMs: 0 };
const someMoved = {
  sums: { weight: 3, tokens: 24_000, ms: 500, squareTokens: 250_000_000, tokenMs: 5_000_000 },
  ageMs: 700,
};
/** Bytes of a note without a decision: version, two doubles, two varints. */
const endOfRoles = 19;

const engines = Array.from({ length: 8 }, (_, at) => ({ id: `e${at}`, role: "both" as EngineRole }));

/** Boards that hear of each other's notes at once, or while they are cut off, not at all. */
function channels(count: number) {
  const listeners: ((note: Note) => void)[] = [];
  const posts: string[] = [];
  let isCut = false;
  const all = Array.from({ length: count }, (_, at): NoteChannel => {
    const origin = { router: asRouterId(`router-${at}`), epoch: 1 };
    return {
      post(key, bytes) {
        posts.push(key);
        if (isCut) return true;
        for (const [other, listener] of listeners.entries())
          if (other !== at) listener({ origin, key, bytes, ageMs: 0 });
        return true;
      },
      onNote(listener) {
        listeners[at] = listener;
        return () => {};
      },
    };
  });
  return {
    all,
    posts,
    cut(is: boolean): void {
      isCut = is;
    },
  };
}

const update = (roles: ReturnType<ReturnType<typeof createFleetRoles>["of"]>): number | undefined => {
  roles.assignment.update(() => engines, roles.balance.prefillShare);
  return roles.assignment.prefillCount;
};

test("routers with different clients agree on the share, and on who computes prompts", () => {
  const { clock, advance } = createVirtualTime();
  const { all } = channels(3);
  const routers = all.map((channel) => createFleetRoles(clock, channel).of("m"));
  const random = createSeededRandom(5);
  for (let second = 0; second < 400; second++) {
    for (const [at, roles] of routers.entries()) {
      // One has long prompts, one long answers, one a few of both.
      const scale = random.float();
      if (at === 0) roles.balance.observe({ uncachedTokens: 30_000 * scale, outputTokens: 10 });
      else if (at === 1) roles.balance.observe({ uncachedTokens: 100, outputTokens: 2_000 * scale });
      roles.tell();
      update(roles);
    }
    advance(1_000);
  }
  const shares = routers.map(({ balance }) => balance.prefillShare());
  for (const share of shares) expect(share).toBeCloseTo(0.75, 1);
  expect(new Set(routers.map(update)).size).toBe(1);
  expect(Math.abs(update(routers[0]!)! - 6)).toBeLessThanOrEqual(1);
  const assignment = routers.map((roles) =>
    engines.filter((engine) => roles.assignment.assignedRoleOf(engine) === "prefill"),
  );
  for (const own of assignment) expect(own).toEqual(assignment[0]);
});

test("engines are kept for prompts while any router splits requests, and no longer than half a minute after", () => {
  const { clock, advance } = createVirtualTime();
  const { all } = channels(2);
  const [one, other] = all.map((channel) => createFleetRoles(clock, channel).of("m"));
  one!.tell();
  expect([one!.isPairing, other!.isPairing]).toEqual([false, false]);
  one!.paired();
  advance(2_000);
  one!.cost.observe(4_000, 100);
  one!.tell();
  expect([one!.isPairing, other!.isPairing]).toEqual([true, true]);
  advance(prefillCountHoldMs - 2_000);
  one!.tell();
  expect([one!.isPairing, other!.isPairing]).toEqual([false, true]);
  advance(2_000);
  expect([one!.isPairing, other!.isPairing]).toEqual([false, false]);
});

test("routers that were cut off from each other come to one number again", () => {
  const { clock, advance } = createVirtualTime();
  const { all, cut } = channels(2);
  const [one, other] = all.map((channel) => createFleetRoles(clock, channel).of("m"));
  const go = (seconds: number): void => {
    for (let second = 0; second < seconds; second++) {
      one!.balance.observe({ uncachedTokens: 10_000, outputTokens: 0 });
      other!.balance.observe({ uncachedTokens: 0, outputTokens: 2_000 });
      for (const roles of [one!, other!]) {
        roles.tell();
        update(roles);
      }
      advance(1_000);
    }
  };
  cut(true);
  go(120);
  expect([update(one!), update(other!)]).toEqual([7, 1]);
  cut(false);
  go(300);
  expect(update(one!)).toBe(update(other!));
  expect(Math.abs(update(one!)! - 4)).toBeLessThanOrEqual(1);
});

test("others are told every two seconds at most", () => {
  const { clock, advance } = createVirtualTime();
  const { all, posts } = channels(1);
  const roles = createFleetRoles(clock, all[0]!).of("m");
  for (let times = 0; times < 1_000; times++) {
    roles.tell();
    advance(10);
  }
  expect(posts).toEqual(Array.from({ length: 5 }, () => "roles/m"));
});

describe("bounds", () => {
  const noteOf = (router: number, key = "roles/m", bytes = writeRoleNote(someNote)): Note => ({
    ...{ origin: { router: asRouterId(`r${router}`), epoch: 1 }, key, bytes, ageMs: 0 },
  });
  const someNote = { work: { prefillMs: 1, decodeMs: 0 }, decision: undefined, transfers: nothingMoved };

  function rig() {
    const { clock } = createVirtualTime();
    let hear: (note: Note) => void = () => {};
    const posts: string[] = [];
    const channel: NoteChannel = {
      post: (key) => posts.push(key) > 0,
      onNote(listener) {
        hear = listener;
        return () => {};
      },
    };
    return { roles: createFleetRoles(clock, channel), hear: (note: Note) => hear(note), posts };
  }

  test(`of ${maxRoleRouters} routers the word is kept, and not of one more`, () => {
    const { roles, hear } = rig();
    for (let router = 0; router < maxRoleRouters; router++) hear(noteOf(router));
    roles.of("m").balance.observe({ uncachedTokens: 0, outputTokens: 2 * maxRoleRouters });
    expect(roles.of("m").balance.prefillShare()).toBe(0.5);
    hear(noteOf(maxRoleRouters));
    expect(roles.of("m").balance.prefillShare()).toBe(0.5);
    hear(
      noteOf(0, "roles/m", writeRoleNote({ ...someNote, work: { prefillMs: 2 * maxRoleRouters + 1, decodeMs: 0 } })),
    );
    expect(roles.of("m").balance.prefillShare()).toBe(0.75);
  });

  test(`${maxRoleModels} models are followed, and not one more`, () => {
    const { roles } = rig();
    for (let model = 0; model < maxRoleModels; model++) roles.of(`m${model}`);
    expect(roles.of("m7")).toBe(roles.of("m7"));
    expect(roles.of("late")).not.toBe(roles.of("late"));
  });

  test("of a model with a name that is too long others are told nothing", () => {
    const { roles, posts } = rig();
    roles.of("m".repeat(200)).tell();
    roles.of("m".repeat(201)).tell();
    expect(posts).toHaveLength(1);
  });

  test("notes about other things, of later versions, and broken ones are passed over", () => {
    const { roles, hear } = rig();
    const bytes = writeRoleNote(someNote);
    hear(noteOf(1, "times/m"));
    hear(noteOf(1, "roles/m", Uint8Array.of(2, ...bytes.subarray(1))));
    for (let end = 0; end < bytes.length; end++) {
      // One that ends before the transfers is of a router that does not tell of them.
      if (end !== endOfRoles) hear(noteOf(1, "roles/m", bytes.subarray(0, end)));
    }
    expect(roles.of("m").balance.prefillShare()).toBeNaN();
    hear(noteOf(1, "roles/m", Uint8Array.of(...bytes, 9)));
    expect(roles.of("m").balance.prefillShare()).toBe(1);
  });
});

test.each([
  [{ work: { prefillMs: 0, decodeMs: 0 }, decision: undefined, transfers: nothingMoved }],
  [{ work: { prefillMs: 1.5, decodeMs: 1e12 }, decision: { count: 7, ageMs: 12_345 }, transfers: someMoved }],
])("a note is read as it was written: %j", (note) => {
  expect(readRoleNote(writeRoleNote(note))).toEqual(note);
});

test("a note that ends before the transfers tells of none", () => {
  const note = { work: { prefillMs: 1.5, decodeMs: 3 }, decision: undefined, transfers: someMoved };
  const read = readRoleNote(writeRoleNote(note).subarray(0, endOfRoles));
  expect(read).toEqual({ ...note, transfers: nothingMoved });
});

const nothing = { work: { prefillMs: 0, decodeMs: 0 }, decision: undefined, transfers: nothingMoved };
const movedLike = (change: Partial<TransferSums>) => ({ sums: { ...someMoved.sums, ...change }, ageMs: 0 });

test.each([
  [{ ...nothing, work: { prefillMs: -1, decodeMs: 0 } }],
  [{ ...nothing, work: { prefillMs: 0, decodeMs: Number.NaN } }],
  [{ ...nothing, work: { prefillMs: Number.POSITIVE_INFINITY, decodeMs: 0 } }],
  [{ ...nothing, decision: { count: 65_536, ageMs: 0 } }],
  [{ ...nothing, transfers: movedLike({ weight: Number.NaN }) }],
  [{ ...nothing, transfers: movedLike({ weight: 52 }) }],
  [{ ...nothing, transfers: movedLike({ weight: 0 }) }],
  [{ ...nothing, transfers: movedLike({ ms: -1 }) }],
  [{ ...nothing, transfers: movedLike({ ms: 300_001 }) }],
  [{ ...nothing, transfers: movedLike({ tokens: 40_000 }) }],
  [{ ...nothing, transfers: movedLike({ squareTokens: Number.POSITIVE_INFINITY }) }],
  [{ ...nothing, transfers: movedLike({ tokenMs: 1e13 }) }],
])("a note that makes no sense is none: %j", (note) => {
  expect(readRoleNote(writeRoleNote(note))).toBeUndefined();
});

describe("what it costs to hand a prompt over", () => {
  /** Transfers of 50 ms and a twentieth for each token: four times what is assumed. */
  const observe = (roles: ModelRoles, count: number, by = 1): void => {
    for (let at = 0; at < count; at++) {
      const tokens = 1_000 + 1_000 * (at % 20);
      roles.cost.observe(tokens, by * (50 + tokens / 20));
      roles.tell();
    }
  };
  const truthMs = 50 + 8_000 / 20;
  const errorOf = ({ cost }: ModelRoles): number => Math.abs(cost.ms(8_000) / truthMs - 1);

  test("a router that joins knows from the others, as soon as it has heard them, and its threshold with it", () => {
    const { clock, advance } = createVirtualTime();
    const { all } = channels(3);
    const [one, other, joiner] = all.map((channel) => createFleetRoles(clock, channel).of("m"));
    expect(errorOf(joiner!)).toBeGreaterThan(0.5);
    for (let round = 0; round < 6; round++) {
      observe(one!, 10);
      observe(other!, 10);
      advance(2_000);
    }
    observe(one!, 1);
    observe(other!, 1);
    expect(errorOf(one!)).toBeLessThan(0.05);
    // A trace of what is assumed is in it.
    expect(errorOf(joiner!)).toBeLessThan(0.1);
    const situation = { answersRunning: 4, prefillMsPerToken: 0.1, prefillMsPerTokenPair: 0, waitSavedMs: -500 };
    const thresholdOf = ({ cost }: ModelRoles): number =>
      splitThreshold(situation, cost, { thresholdTokens: undefined, minTokens: 100, maxTokens: 16_384 });
    expect(thresholdOf(joiner!) / thresholdOf(one!)).toBeCloseTo(1, 1);
    expect(thresholdOf(createFleetRoles(clock, undefined).of("m"))).toBeLessThan(0.95 * thresholdOf(one!));
  });

  test("what a router sees itself goes over what others say", () => {
    const { clock, advance } = createVirtualTime();
    const { all } = channels(2);
    const [one, other] = all.map((channel) => createFleetRoles(clock, channel).of("m"));
    observe(other!, 100, 4);
    advance(2_000);
    observe(other!, 1, 4);
    expect(one!.cost.ms(8_000) / truthMs).toBeGreaterThan(3);
    observe(one!, 100);
    expect(one!.cost.ms(8_000) / truthMs).toBeLessThan(2);
  });

  test("of one model says nothing of another, and what is old counts for less", () => {
    const { clock, advance } = createVirtualTime();
    const { all } = channels(3);
    const [one, other, joiner] = all.map((channel) => createFleetRoles(clock, channel));
    observe(one!.of("m"), 4);
    advance(20 * 600_000);
    observe(other!.of("m"), 4, 3);
    // Both are told of again: the first ones are as old as they are.
    one!.of("m").tell();
    advance(2_000);
    observe(other!.of("m"), 1, 3);
    expect(errorOf(joiner!.of("n"))).toBeGreaterThan(0.5);
    expect(joiner!.of("m").cost.ms(8_000)).toBeCloseTo(other!.of("m").cost.ms(8_000), -1);
  });
});
