import { asRouterId, createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { type Candidate, candidateHash, decideRole, eligibleFor, rankingOf } from "../../src/feeds/decide-role.ts";
import { type FeedQuality, holdsAgainst, type PostedClaim } from "../../src/feeds/feed-claim.ts";

const self = asRouterId("self");

function claimOf(router: string, quality: FeedQuality = "complete", stamp = 1): PostedClaim {
  const claim = { target: "t", stamp, quality, state: "", reason: "", unusable: null };
  return { origin: { router: asRouterId(router), epoch: 1 }, claim };
}

function candidateOf(
  name: string,
  more: { isDraining?: boolean; unreachable?: readonly string[]; region?: string } = {},
): Candidate {
  const router = asRouterId(name);
  const { isDraining = false, unreachable = [], region } = more;
  return { router, hash: candidateHash(router), isDraining, unreachable: new Set(unreachable), region };
}

const decide = (
  nominee: string,
  backup: string,
  holder: string,
  {
    quality = "complete",
    held = "complete",
    mayTakeOver = true,
  }: Partial<Record<"quality" | "held", FeedQuality>> & {
    mayTakeOver?: boolean;
  } = {},
) =>
  decideRole({
    self,
    ranking: { nominee: asRouterId(nominee), backup: asRouterId(backup), rank: nominee === "self" ? 0 : 1 },
    holding: claimOf(holder, held),
    quality,
    mayTakeOver,
    unclaimedMs: 0,
  });

test("who holds the claim is the owner, nominated or not", () => {
  expect(decide("self", "x", "self")).toBe("owner");
  expect(decide("x", "x", "self", { quality: "none" })).toBe("owner");
  expect(decide("x", "x", "self", { mayTakeOver: false })).toBe("owner");
});

test.each<[FeedQuality, FeedQuality, "owner" | "backup"]>([
  ["complete", "complete", "owner"],
  ["complete", "partial", "owner"],
  ["complete", "none", "owner"],
  ["partial", "complete", "backup"],
  ["partial", "partial", "owner"],
  ["partial", "void", "owner"],
  ["void", "complete", "backup"],
  ["void", "void", "backup"],
  ["none", "none", "backup"],
  ["none", "complete", "backup"],
])("a nominee whose reading is %s, under a live claim that is %s, is %s", (quality, held, role) => {
  expect(decide("self", "self", "x", { quality, held })).toBe(role);
  expect(decide("self", "self", "x", { quality, held, mayTakeOver: false })).toBe("backup");
});

test("besides the claimant one router reads along, the others do not", () => {
  expect(decide("x", "self", "x")).toBe("backup");
  expect(decide("x", "y", "x")).toBe("none");
  expect(decide("y", "y", "x")).toBe("none");
});

test.each<[number | undefined, number, string]>([
  [undefined, 9_999, "none"],
  [0, 0, "owner"],
  [1, 0, "backup"],
  [1, 999, "backup"],
  [1, 1_000, "owner"],
  [2, 0, "none"],
  [2, 1_000, "backup"],
  [2, 2_000, "owner"],
])("without a live claim, rank %s after %i ms is %s", (rank, unclaimedMs, role) => {
  const ranking = { nominee: undefined, backup: undefined, rank };
  const question = { self, ranking, holding: undefined, quality: "none", mayTakeOver: true, unclaimedMs } as const;
  expect(decideRole(question)).toBe(role);
});

test("of any set of claims exactly one holds against all", () => {
  const random = createSeededRandom(3);
  for (let round = 0; round < 300; round++) {
    const routers = ["a", "b", "c", "d", "e"].slice(0, 1 + random.integer(5));
    const claims = routers.map((router) => claimOf(router, "complete", random.integer(3)));
    const holders = claims.filter((one) => claims.every((other) => holdsAgainst(one, other)));
    expect(holders).toHaveLength(1);
    const latest = Math.max(...claims.map(({ claim }) => claim.stamp));
    const expected = claims.filter(({ claim }) => claim.stamp === latest)[0]!;
    expect(holders[0]).toBe(expected);
  }
});

test("targets spread evenly, and one candidate more takes only what falls to it", () => {
  const names = Array.from({ length: 8 }, (_, index) => `router-${index}`);
  const before = names.slice(0, 7).map((name) => candidateOf(name));
  const after = names.map((name) => candidateOf(name));
  const counts = new Map<string, number>();
  let taken = 0;
  for (let index = 0; index < 8_000; index++) {
    const target = `engine-${index}/${index % 2}`;
    const old = rankingOf(target, before, { self, claimant: undefined }).nominee!;
    const now = rankingOf(target, after, { self, claimant: undefined }).nominee!;
    if (now !== old) expect(now).toBe("router-7");
    taken += now === old ? 0 : 1;
    counts.set(now, (counts.get(now) ?? 0) + 1);
  }
  // 1,000 each is expected; five standard deviations of a binomial are 148.
  for (const name of names) expect(Math.abs(counts.get(name)! - 1_000)).toBeLessThan(150);
  expect(Math.abs(taken - 1_000)).toBeLessThan(150);
});

test("the ranking is that of a naive sort, whoever the claimant is", () => {
  const random = createSeededRandom(8);
  for (let round = 0; round < 200; round++) {
    const target = `t${round}`;
    const candidates = ["a", "b", "c", "d", "self"]
      .filter(() => random.integer(4) > 0)
      .map((name) => candidateOf(name));
    // Nominating from what is left, again and again, is the order by weight.
    const order: string[] = [];
    for (let left = candidates; left.length > 0; ) {
      const { nominee } = rankingOf(target, left, { self, claimant: undefined });
      order.push(nominee!);
      left = left.filter(({ router }) => router !== nominee);
    }
    const claimant = candidates[random.integer(candidates.length + 1)]?.router;
    const ranking = rankingOf(target, candidates.toReversed(), { self, claimant });
    expect(ranking.nominee).toBe(order[0]);
    expect(ranking.backup).toBe(order.find((router) => router !== claimant));
    expect(ranking.rank).toBe(order.includes("self") ? order.indexOf("self") : undefined);
  }
});

test("routers of a target's region come before all others, each group in its own order", () => {
  const near = ["a", "b", "c"].map((name) => candidateOf(name, { region: "eu" }));
  const far = [...["d", "e"].map((name) => candidateOf(name, { region: "us" })), candidateOf("f")];
  const order = (candidates: readonly Candidate[], region?: string): string[] =>
    candidates
      .map(({ router }) => ({
        router,
        rank: rankingOf("t", candidates, { self: router, claimant: undefined, region }).rank!,
      }))
      .sort((one, other) => one.rank - other.rank)
      .map(({ router }) => router);
  expect(order([...far, ...near], "eu")).toEqual([...order(near), ...order(far)]);
  for (const region of [undefined, "asia"]) expect(order([...far, ...near], region)).toEqual(order([...near, ...far]));
  const [first, second] = order(near);
  const ranking = rankingOf("t", [...far, ...near], { self, claimant: asRouterId(first!), region: "eu" });
  expect([ranking.nominee, ranking.backup]).toEqual([first, second]);
  const single = rankingOf("t", [...far, near[0]!], { self, claimant: near[0]!.router, region: "eu" });
  expect([single.nominee, single.backup]).toEqual(["a", order(far)[0]]);
});

test("targets go to those that reach them and stay, else to those that reach them, else to all", () => {
  const steady = candidateOf("steady");
  const draining = candidateOf("draining", { isDraining: true });
  const cutOff = candidateOf("cut-off", { unreachable: ["t"] });
  expect(eligibleFor("t", [steady, draining, cutOff])).toEqual([steady]);
  expect(eligibleFor("t", [draining, cutOff])).toEqual([draining]);
  expect(eligibleFor("t", [cutOff])).toEqual([cutOff]);
  expect(eligibleFor("other", [draining, cutOff])).toEqual([cutOff]);
  expect(eligibleFor("t", [])).toEqual([]);
});
