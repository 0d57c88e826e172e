import { EspalierError } from "@espalier/core";
import { expect, test } from "vitest";
import { createMesh, createNetwork, type Node, namesOf } from "./network.ts";

const others = (count: number, ...except: string[]): string[] => namesOf(count).filter((n) => !except.includes(n));

/** When a router first saw another one in a state, after a time. */
function firstSeen(node: Node, name: string, state: string, afterMs: number): number {
  const change = node.changes.find(
    ({ member, atMs }) => atMs >= afterMs && member.origin.router === name && member.state === state,
  );
  return change ? change.atMs - afterMs : Number.NaN;
}

test("routers that know one seed find each other and have a link to each", () => {
  const network = createMesh(6, { seed: 1 });
  for (const { name, membership, seen } of network.nodes()) {
    expect(seen("alive")).toEqual(others(6, name));
    expect([...membership.linksOf(name as never)].sort()).toEqual(others(6, name));
    for (const member of membership.members()) {
      expect(member.isLinked).toBe(true);
      expect([...membership.linksOf(member.origin.router)].sort()).toEqual(others(6, member.origin.router));
      expect(membership.addressOf(member.origin.router)).toBe(`${member.origin.router}:7000`);
    }
  }
});

test("a killed router is down within 1 s everywhere and forgotten within 6 s", () => {
  const network = createMesh(5, { seed: 2 });
  const startMs = network.time.clock.nowMs();
  network.kill("c");
  network.run(6_000);
  for (const node of network.nodes()) {
    expect(firstSeen(node, "c", "down", startMs)).toBeLessThanOrEqual(1_000);
    expect(node.seen("alive")).toEqual(others(5, "c", node.name));
    expect(node.membership.members()).toHaveLength(3);
    expect(node.changes.at(-1)).toMatchObject({ before: "down", isForgotten: true });
  }
});

test("a router that falls silent is suspected at 2 s, down at 4 s, forgotten at 6 s", () => {
  const network = createMesh(5, { seed: 3, maxDelayMs: 30 });
  const startMs = network.time.clock.nowMs();
  for (const name of others(5, "c")) {
    network.cut("c", name);
    network.cut(name, "c");
  }
  network.run(6_000);
  for (const node of network.nodes().filter(({ name }) => name !== "c")) {
    expect(firstSeen(node, "c", "suspect", startMs)).toBeGreaterThan(1_000);
    expect(firstSeen(node, "c", "suspect", startMs)).toBeLessThanOrEqual(2_000);
    expect(firstSeen(node, "c", "down", startMs)).toBeGreaterThan(2_500);
    expect(firstSeen(node, "c", "down", startMs)).toBeLessThanOrEqual(4_000);
    expect(network.hasLink(node.name, "c")).toBe(false);
    expect(node.seen("alive")).toEqual(others(5, "c", node.name));
    expect(node.membership.members()).toHaveLength(3);
  }
});

test("a router that is stopped for 5 s evicts nobody, and is alive again for all", () => {
  const network = createMesh(5, { seed: 4 });
  const startMs = network.time.clock.nowMs();
  network.pause("c");
  network.run(5_000);
  for (const node of network.nodes().filter(({ name }) => name !== "c")) expect(node.seen("down")).toEqual(["c"]);
  network.resume("c");
  network.run(2_500);
  const stopped = network.node("c");
  expect(stopped.changes.filter(({ member, atMs }) => atMs >= startMs && member.state === "down")).toEqual([]);
  expect(stopped.logLines.filter(({ message }) => message.startsWith("process paused for"))).toHaveLength(1);
  for (const node of network.nodes()) {
    expect(node.seen("alive")).toEqual(others(5, node.name));
    for (const name of others(5, "c", node.name)) {
      expect(firstSeen(node, name, "down", startMs)).toBeNaN();
    }
  }
});

test("a broken link between two that others hear evicts nobody: it is redialed", () => {
  const network = createMesh(4, { seed: 5 });
  network.cut("a", "b");
  network.cut("b", "a");
  const startMs = network.time.clock.nowMs();
  network.run(20_000);
  expect(network.hasLink("a", "b")).toBe(false);
  for (const node of network.nodes()) {
    expect(node.seen("alive")).toEqual(others(4, node.name));
    expect(node.changes.filter(({ atMs, member }) => atMs >= startMs && member.state !== "alive")).toEqual([]);
  }
  expect(network.node("a").membership.member("b" as never)).toMatchObject({ isLinked: false });
  expect(
    network
      .node("c")
      .membership.linksOf("a" as never)
      .has("b" as never),
  ).toBe(false);
  network.heal("a", "b");
  network.heal("b", "a");
  network.run(2_500);
  expect(network.node("a").membership.member("b" as never)).toMatchObject({ state: "alive", isLinked: true });
});

test("a later epoch of a router replaces the earlier one at once", () => {
  const network = createMesh(3, { seed: 6 });
  network.kill("b");
  network.run(300);
  network.add("b", { epoch: 2, seeds: ["a"] });
  network.run(1_500);
  for (const node of network.nodes().filter(({ name }) => name !== "b")) {
    const reported = node.changes.filter(({ member }) => member.origin.router === "b");
    const ended = reported.findIndex(({ isForgotten }) => isForgotten);
    expect(reported[ended]).toMatchObject({ member: { state: "down", origin: { epoch: 1 } } });
    expect(reported.slice(ended + 1).every(({ member }) => member.origin.epoch === 2)).toBe(true);
    expect(node.membership.member("b" as never)).toMatchObject({ state: "alive", origin: { epoch: 2 } });
  }
});

test("who leaves is gone for all at once, and its address is dialed no more", () => {
  const network = createMesh(4, { seed: 7 });
  network.node("b").membership.leave();
  network.run(50);
  network.kill("b");
  network.run(200);
  for (const node of network.nodes()) expect(node.seen("left")).toEqual(["b"]);
  network.run(3_000);
  for (const node of network.nodes()) {
    expect(node.membership.members()).toHaveLength(2);
    expect(node.changes.some(({ member }) => member.state === "down")).toBe(false);
  }
});

test("draining and unreachable targets are told to all", () => {
  const network = createMesh(3, { seed: 8 });
  const { membership } = network.node("b");
  membership.setDraining(true);
  membership.setUnreachable(["t2", "t1", "t2"]);
  network.run(100);
  for (const name of ["a", "c"]) {
    const member = network.node(name).membership.member("b" as never);
    expect(member).toMatchObject({ isDraining: true, unreachable: ["t1", "t2"], state: "alive" });
  }
  const { length } = network.node("a").changes;
  membership.setDraining(true);
  membership.setUnreachable(["t1", "t2"]);
  network.run(100);
  expect(network.node("a").changes).toHaveLength(length);
  membership.setUnreachable(Array.from({ length: 300 }, (_, index) => `target-${index}`));
  network.run(100);
  expect(network.node("a").membership.member("b" as never)!.unreachable).toHaveLength(256);
});

test("news that a full link did not take is made good by the next comparison", () => {
  const network = createMesh(4, { seed: 13 });
  const node = network.node("b");
  node.isChoked = true;
  node.membership.setDraining(true);
  network.run(800);
  expect(network.node("a").membership.member("b" as never)).toMatchObject({ isDraining: false });
  node.isChoked = false;
  network.run(2_500);
  for (const { name, membership } of network.nodes()) {
    if (name !== "b") expect(membership.member("b" as never)).toMatchObject({ isDraining: true, state: "alive" });
  }
});

test("two links that flap all the time evict nobody", () => {
  const network = createMesh(3, { seed: 14 });
  const startMs = network.time.clock.nowMs();
  for (let flap = 0; flap < 60; flap++) {
    network.reset("a", "b");
    network.run(250);
    network.reset("b", "c");
    network.run(250);
  }
  for (const { changes } of network.nodes()) {
    expect(changes.filter(({ atMs, member }) => atMs > startMs && member.state === "down")).toEqual([]);
  }
  network.run(2_000);
  for (const node of network.nodes()) expect(node.seen("alive")).toHaveLength(2);
});

test("a router that cannot be dialed is a member like others", () => {
  const network = createNetwork({ seed: 15, hidden: ["c"] });
  for (const name of namesOf(3)) network.add(name, { seeds: name === "a" ? [] : ["a", "b"] });
  network.run(2_500);
  expect(network.node("a").membership.addressOf("c" as never)).toBeUndefined();
  expect(network.node("a").membership.isReached("b:7000")).toBe(true);
  expect(network.node("a").membership.isReached("c:7000")).toBe(false);
  network.reset("a", "c");
  network.run(1_500);
  for (const node of network.nodes()) expect(node.seen("alive")).toEqual(others(3, node.name));
  expect(network.hasLink("a", "c")).toBe(true);
  network.kill("c");
  network.run(2_000);
  for (const node of network.nodes()) expect(node.seen("down")).toEqual(["c"]);
});

test("an idle link carries less than 1 KB/s both ways together", () => {
  const network = createMesh(8, { seed: 9 });
  network.run(10_000);
  for (const node of network.nodes()) node.sentBytes = 0;
  for (const node of network.nodes()) node.sentFrames = 0;
  network.run(10_000);
  const links = (8 * 7) / 2;
  const sum = (of: (node: Node) => number): number => network.nodes().reduce((total, node) => total + of(node), 0);
  const bytesPerLink = sum(({ sentBytes }) => sentBytes) / links / 10;
  const framesPerLink = sum(({ sentFrames }) => sentFrames) / links / 10;
  // Framing of the link, the WebSocket, TCP and IP: at most 60 B a frame.
  expect(bytesPerLink + 60 * framesPerLink).toBeLessThan(1_000);
});

test("an unreadable frame is refused with a code and changes nothing", () => {
  const network = createMesh(2, { seed: 10 });
  const { membership } = network.node("a");
  const before = membership.members();
  const link = { peer: { origin: before[0]!.origin } } as never;
  expect(() => membership.receive(link, new Uint8Array([99]))).toThrow(EspalierError);
  expect(() => membership.receive(link, new Uint8Array(0))).toThrow(/cannot be read/);
  expect(membership.members()).toEqual(before);
});

test("one router more than a mesh is made for is a member like others, and operators are told, each time anew", () => {
  const network = createMesh(4, { seed: 12, limits: { maxRouters: 4 } });
  const warnings = (node: Node): unknown[] =>
    node.logLines
      .filter(({ message }) => message.startsWith("too many routers for one mesh"))
      .map(({ fields }) => fields);
  for (const node of network.nodes()) expect(warnings(node)).toEqual([]);
  network.add("e", { seeds: ["a"] });
  network.run(2_000);
  for (const node of network.nodes()) {
    expect(node.seen("alive")).toEqual(others(5, node.name));
    expect([...node.membership.linksOf(node.router)].sort()).toEqual(others(5, node.name));
    expect(warnings(node)).toEqual([{ routers: 5, most: 4 }]);
  }
  network.kill("e");
  network.run(7_000);
  network.add("f", { seeds: ["a"] });
  network.run(2_000);
  expect(warnings(network.node("b"))).toHaveLength(2);
});

test("one member more than there is room for is not taken up", () => {
  const network = createNetwork({ seed: 11, limits: { maxMembers: 3 } });
  for (const name of namesOf(5)) network.add(name, { seeds: name === "a" ? [] : ["a"] });
  network.run(3_000);
  for (const node of network.nodes()) expect(node.membership.members().length).toBeLessThanOrEqual(3);
  expect(network.node("a").membership.members()).toHaveLength(3);
});
