/** Routers weigh the work of all of them, and come to the same number of engines that compute prompts. */
import { asRouterId, createSeededRandom, type EngineRole } from "@espalier/common";
import type { Note, NoteBoard } from "@espalier/replication";
import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { createFleetRoles, maxRoleModels, maxRoleRouters } from "../../src/disaggregation/fleet-roles.ts";
import { readRoleNote, writeRoleNote } from "../../src/disaggregation/role-note.ts";

const engines = Array.from({ length: 8 }, (_, at) => ({ id: `e${at}`, role: "both" as EngineRole }));

/** Boards that hear of each other's notes at once, or while they are cut off, not at all. */
function boards(count: number) {
  const listeners: ((note: Note) => void)[] = [];
  const posts: string[] = [];
  let isCut = false;
  const all = Array.from({ length: count }, (_, at): NoteBoard => {
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
  roles.duties.update(() => engines, roles.balance.prefillShare);
  return roles.duties.prefillCount;
};

test("routers with different clients agree on the share, and on who computes prompts", () => {
  const { clock, advance } = createVirtualTime();
  const { all } = boards(3);
  const routers = all.map((board) => createFleetRoles(clock, board).of("m"));
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
  const duties = routers.map((roles) => engines.filter((engine) => roles.duties.dutyOf(engine) === "prefill"));
  for (const own of duties) expect(own).toEqual(duties[0]);
});

test("routers that were cut off from each other come to one number again", () => {
  const { clock, advance } = createVirtualTime();
  const { all, cut } = boards(2);
  const [one, other] = all.map((board) => createFleetRoles(clock, board).of("m"));
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
  const { all, posts } = boards(1);
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
  const someNote = { work: { prefillMs: 1, decodeMs: 0 }, decision: undefined };

  function rig() {
    const { clock } = createVirtualTime();
    let hear: (note: Note) => void = () => {};
    const posts: string[] = [];
    const board: NoteBoard = {
      post: (key) => posts.push(key) > 0,
      onNote(listener) {
        hear = listener;
        return () => {};
      },
    };
    return { roles: createFleetRoles(clock, board), hear: (note: Note) => hear(note), posts };
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
    for (let end = 0; end < bytes.length; end++) hear(noteOf(1, "roles/m", bytes.subarray(0, end)));
    expect(roles.of("m").balance.prefillShare()).toBeNaN();
    hear(noteOf(1, "roles/m", Uint8Array.of(...bytes, 9)));
    expect(roles.of("m").balance.prefillShare()).toBe(1);
  });
});

test.each([
  [{ work: { prefillMs: 0, decodeMs: 0 }, decision: undefined }],
  [{ work: { prefillMs: 1.5, decodeMs: 1e12 }, decision: { count: 7, ageMs: 12_345 } }],
])("a note is read as it was written: %j", (note) => {
  expect(readRoleNote(writeRoleNote(note))).toEqual(note);
});

test.each([
  [{ work: { prefillMs: -1, decodeMs: 0 }, decision: undefined }],
  [{ work: { prefillMs: 0, decodeMs: Number.NaN }, decision: undefined }],
  [{ work: { prefillMs: Number.POSITIVE_INFINITY, decodeMs: 0 }, decision: undefined }],
  [{ work: { prefillMs: 0, decodeMs: 0 }, decision: { count: 65_536, ageMs: 0 } }],
])("a note that makes no sense is none: %j", (note) => {
  expect(readRoleNote(writeRoleNote(note))).toBeUndefined();
});
