import { asRouterId, createSeededRandom, type RouterId } from "@espalier/common";
import { expect, test } from "vitest";
import { neighboursOf } from "../../src/membership/overlay.ts";
import { createNetwork } from "./network.ts";

const degree = 8;

function routersOf(count: number, seed: number): RouterId[] {
  const random = createSeededRandom(seed);
  return Array.from({ length: count }, (_, index) => asRouterId(`router-${index}-${random.integer(1e9)}`));
}

/** The longest of the shortest paths, or undefined when some router is not reached. */
function diameterOf(routers: readonly RouterId[]): number | undefined {
  const edges = new Map(routers.map((router) => [router, neighboursOf(router, routers, degree)]));
  let longest = 0;
  for (const start of routers) {
    let frontier = [start];
    const reached = new Set(frontier);
    for (let hops = 0; frontier.length > 0; hops++) {
      longest = Math.max(longest, hops);
      frontier = frontier.flatMap((router) => [...edges.get(router)!].filter((next) => !reached.has(next)));
      for (const next of frontier) reached.add(next);
    }
    if (reached.size !== routers.length) return undefined;
  }
  return longest;
}

test("the graph is symmetric, of bounded degree, and connected, for any membership", () => {
  for (let seed = 1; seed <= 30; seed++) {
    const routers = routersOf(1 + ((seed * 7) % 90), seed);
    for (const router of routers) {
      const neighbours = neighboursOf(router, routers, degree);
      expect(neighbours.size).toBeLessThanOrEqual(degree);
      expect(neighbours.has(router)).toBe(false);
      for (const next of neighbours) expect(neighboursOf(next, routers, degree).has(router)).toBe(true);
    }
    expect(diameterOf(routers)).toBeDefined();
  }
});

test("the order in which members are known, and whether oneself is among them, does not matter", () => {
  const routers = routersOf(40, 3);
  const [self] = routers as [RouterId];
  const expected = [...neighboursOf(self, routers, degree)].sort();
  expect([...neighboursOf(self, routers.toReversed(), degree)].sort()).toEqual(expected);
  expect([...neighboursOf(self, routers.slice(1), degree)].sort()).toEqual(expected);
});

test("256 routers are four hops apart at most", () => {
  expect(diameterOf(routersOf(256, 1))).toBeLessThanOrEqual(4);
});

test("one router less moves only links beside it", () => {
  const routers = routersOf(64, 9);
  const without = routers.slice(1);
  let moved = 0;
  for (const router of without) {
    const before = neighboursOf(router, routers, degree);
    const after = neighboursOf(router, without, degree);
    moved += [...after].filter((next) => !before.has(next)).length;
  }
  expect(moved).toBeLessThanOrEqual(degree);
});

test("24 routers link to their neighbours only, see all others, and notice a death within 1 s", () => {
  const network = createNetwork({ seed: 4 });
  const names = Array.from({ length: 24 }, (_, index) => `r${index}`);
  for (const name of names) network.add(name, { seeds: name === "r0" ? [] : ["r0"] });
  network.run(40_000);
  const routers = names.map(asRouterId);
  for (const node of network.nodes()) {
    expect(node.seen("alive")).toHaveLength(23);
    const neighbours = neighboursOf(node.router, routers, degree);
    const links = node.membership.linksOf(node.router);
    for (const next of neighbours) expect(links.has(next)).toBe(true);
    // The seed keeps links that routers beyond the overlay go on to dial.
    const surplus = [...links].filter((next) => !neighbours.has(next) && next !== "r0");
    if (node.name !== "r0") expect(surplus).toEqual([]);
  }
  const startMs = network.time.clock.nowMs();
  network.kill("r7");
  network.run(1_000);
  for (const node of network.nodes()) {
    expect(node.seen("down")).toEqual(["r7"]);
    const others = node.changes.filter(({ atMs, member }) => atMs >= startMs && member.origin.router !== "r7");
    expect(others.every(({ member }) => member.state === "alive")).toBe(true);
  }
});
