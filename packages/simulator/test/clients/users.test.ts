import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { createTreeUsers, createUsers, regionOfUser } from "../../src/clients/users.ts";
import type { SimRequest, Workload } from "../../src/clients/workload.ts";

/** Answers everything after a second. */
function answered(workload: Workload, seconds: number): readonly SimRequest[] {
  const { clock, scheduler, advance } = createVirtualTime();
  const sent: SimRequest[] = [];
  workload.start({
    ...{ clock, scheduler },
    send(request, ended) {
      sent.push(request);
      const outcome = { firstTokenMs: 0, endMs: 0, cachedTokens: 0, error: undefined };
      scheduler.after(1_000, () => ended(outcome));
    },
    finished() {},
  });
  advance(seconds * 1_000);
  return sent;
}

test("users have a region each, and the next conversation of a user is in the same one", () => {
  expect([0, 1, 2, 3, 4, 5].map((session) => regionOfUser(session, [2, 0, 1]))).toEqual([0, 0, 2, 0, 0, 2]);
  const scriptOf = () => ({
    ...{ turns: 2, expectedTokens: 100, pauseMs: () => 0 },
    write: (_: number, { own }: { own(tokens: number): void }) => {
      own(32);
      return 16;
    },
  });
  const sent = answered(createUsers({ seed: 1, users: [1, 2], scriptOf, limits: { durationS: 10 } }), 4);
  const ofUser = (user: string): readonly SimRequest[] => sent.filter(({ tenant }) => tenant === user);
  expect(ofUser("user-0").map(({ session, turn, region }) => [session, turn, region])).toEqual([
    [0, 0, 0],
    [0, 1, 0],
    [3, 0, 0],
    [3, 1, 0],
    [6, 0, 0],
  ]);
  expect(new Set(ofUser("user-2").map(({ region }) => region))).toEqual(new Set([1]));
});

const tree = { branches: 2, sharedTokens: 32, promptTokens: [48, 16, 16], outputTokens: () => 32 } as const;

test("a question is thought through level by level, and then comes the next one", () => {
  const sent = answered(createTreeUsers({ seed: 1, users: [1], scriptOf: () => tree, limits: { durationS: 60 } }), 3.5);
  expect(sent.slice(0, 14).map(({ turn }) => turn)).toEqual([0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]);
  expect(sent.slice(14).map(({ session, turn }) => [session, turn])).toEqual([
    [1, 0],
    [1, 0],
  ]);
  expect(sent.slice(0, 7).map(({ promptTokens }) => promptTokens)).toEqual([80, 80, 128, 128, 128, 128, 176]);
});

test("a thought goes on from its own answer, and questions share nothing but the instruction", () => {
  const [first, second, ofFirst, , ofSecond] = answered(
    createTreeUsers({ seed: 1, users: [1], scriptOf: () => tree, limits: { requests: 16 } }),
    10,
  ) as readonly SimRequest[];
  const blocks = ({ chain }: SimRequest, count: number): readonly number[] => [...chain.subarray(0, 2 * count)];
  // Five blocks of prompt, two of the answer.
  expect(blocks(second!, 5)).toEqual(blocks(first!, 5));
  expect(blocks(second!, 7)).not.toEqual(blocks(first!, 7));
  expect(blocks(ofFirst!, 7)).toEqual(blocks(first!, 7));
  expect(blocks(ofSecond!, 7)).toEqual(blocks(second!, 7));
  const other = answered(
    createTreeUsers({ seed: 1, users: [2], scriptOf: () => tree, limits: { requests: 4 } }),
    10,
  ).find(({ session }) => session === 1)!;
  expect(blocks(other, 2)).toEqual(blocks(first!, 2));
  expect(blocks(other, 3)).not.toEqual(blocks(first!, 3));
});
