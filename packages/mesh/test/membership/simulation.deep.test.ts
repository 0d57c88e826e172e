import { expect, test } from "vitest";
import { createNetwork, type Network, type NetworkOptions, namesOf } from "./network.ts";

/** The history of one seed's run: who was stopped, killed or cut off when, so that wrong evictions can be told. */
interface Run {
  readonly network: Network;
  readonly names: readonly string[];
  /** Ordered pairs that are cut. */
  readonly cuts: Set<string>;
  readonly paused: Set<string>;
  readonly killed: Set<string>;
  /** For each ordered pair, when the one was last not connected to the other by running routers. */
  readonly disconnectedAtMs: Map<string, number>;
  epoch: number;
}

const stepMs = 50;
/** A pair that has been connected for so long must see each other alive: redials, handshakes and gossip are over. */
const graceMs = 5_000;

function startRun(seed: number, options: Partial<NetworkOptions> = {}): Run {
  const network = createNetwork({ seed, minDelayMs: 1, maxDelayMs: 2 + (seed % 4) * 20, ...options });
  const names = namesOf(3 + (seed % 6));
  for (const [index, name] of names.entries()) network.add(name, { seeds: names.slice(0, Math.min(index, 2)) });
  const run = { network, names, epoch: 1 };
  return { ...run, cuts: new Set(), paused: new Set(), killed: new Set(), disconnectedAtMs: new Map() };
}

function cut(run: Run, from: string, to: string): void {
  run.cuts.add(`${from}>${to}`);
  run.network.cut(from, to);
}

function healAll(run: Run): void {
  for (const pair of run.cuts) {
    const [from, to] = pair.split(">") as [string, string];
    run.network.heal(from, to);
  }
  run.cuts.clear();
}

function inBothDirections(run: Run, one: string, other: string): void {
  cut(run, one, other);
  cut(run, other, one);
}

/** The routers that a router can reach over links that work both ways, by way of others too. */
function componentOf(run: Run, start: string): Set<string> {
  const reached = new Set([start]);
  if (run.paused.has(start) || run.killed.has(start)) return reached;
  for (const from of reached) {
    for (const to of run.names) {
      if (run.paused.has(to) || run.killed.has(to)) continue;
      if (!run.cuts.has(`${from}>${to}`) && !run.cuts.has(`${to}>${from}`)) reached.add(to);
    }
  }
  return reached;
}

/** Moves time, and checks at every step that nobody is evicted who was connected long enough. */
function advance(run: Run, durationMs: number): void {
  for (let elapsedMs = 0; elapsedMs < durationMs; elapsedMs += stepMs) {
    run.network.run(stepMs);
    const nowMs = run.network.time.clock.nowMs();
    for (const from of run.names) {
      const component = componentOf(run, from);
      for (const to of run.names) {
        if (to === from) continue;
        const pair = `${from}>${to}`;
        if (!component.has(to)) run.disconnectedAtMs.set(pair, nowMs);
        if (nowMs - (run.disconnectedAtMs.get(pair) ?? 0) < graceMs) continue;
        const state = run.network.node(from).membership.member(to as never)?.state;
        if (state === "down" || state === undefined) {
          throw new Error(`at ${nowMs} ms ${from} takes ${to} for ${state}, though a path leads to it`);
        }
      }
    }
  }
}

/** A fault, and for how long it lasts. */
function breakSomething(run: Run): void {
  const { network, names } = run;
  const { random } = network;
  const name = names[random.integer(names.length)]!;
  const others = names.filter((other) => other !== name);
  const other = others[random.integer(others.length)]!;
  switch (random.integer(7)) {
    case 0: {
      network.kill(name);
      run.killed.add(name);
      advance(run, 500 + random.integer(8_000));
      run.epoch += 1;
      run.killed.delete(name);
      network.add(name, { epoch: run.epoch, seeds: others });
      return;
    }
    case 1:
      for (const each of others) inBothDirections(run, name, each);
      break;
    case 2:
      cut(run, name, other);
      break;
    case 3: {
      const bridge = names[0]!;
      for (const [index, one] of names.entries()) {
        for (const two of names.slice(index + 1)) {
          if (one !== bridge && two !== bridge && (index + names.indexOf(two)) % 2 === 1)
            inBothDirections(run, one, two);
        }
      }
      break;
    }
    case 4:
      for (let flap = 0; flap < 6; flap++) {
        network.reset(name, other);
        advance(run, 100 + random.integer(400));
      }
      return;
    case 5:
      network.pause(name);
      run.paused.add(name);
      advance(run, 1_000 + random.integer(6_000));
      run.paused.delete(name);
      network.resume(name);
      return;
    default: {
      // A chain: each router has a path to each, most of them a long one.
      for (const [index, one] of names.entries()) {
        for (const two of names.slice(index + 2)) inBothDirections(run, one, two);
      }
    }
  }
  advance(run, 500 + random.integer(9_000));
  healAll(run);
}

function checkConverged(run: Run): void {
  for (const { name, membership } of run.network.nodes()) {
    const others = run.names.filter((other) => other !== name);
    const members = [...membership.members()].sort((one, two) => (one.origin.router < two.origin.router ? -1 : 1));
    expect(members.map(({ origin }) => origin.router)).toEqual(others);
    for (const member of members) {
      expect(member).toMatchObject({ state: "alive", isLinked: true });
      expect(member.origin.epoch).toBe(run.network.node(member.origin.router).epoch);
      expect(membership.linksOf(member.origin.router).size).toBe(run.names.length - 1);
    }
  }
}

test("after any faults all routers see all others, and nobody was evicted to whom a path led", () => {
  for (let seed = 1; seed <= 200; seed++) {
    const run = startRun(seed);
    try {
      advance(run, 2_000);
      breakSomething(run);
      if (seed % 2 === 0) breakSomething(run);
      advance(run, 5_000);
      checkConverged(run);
    } catch (error) {
      throw new Error(`seed ${seed}: ${error instanceof Error ? error.message : error}`, { cause: error });
    }
  }
}, 120_000);

test("in any mesh a killed router is down within 1 s and a silent one within 4 s", () => {
  for (let seed = 1; seed <= 60; seed++) {
    const run = startRun(seed);
    run.network.run(2_500);
    const victim = run.names[seed % run.names.length]!;
    const isKill = seed % 2 === 0;
    if (isKill) run.network.kill(victim);
    else for (const other of run.names) if (other !== victim) inBothDirections(run, victim, other);
    const limits = isKill ? { suspect: 1_000, down: 1_000 } : { suspect: 2_000, down: 4_000 };
    run.network.run(limits.suspect);
    for (const node of run.network.nodes().filter(({ name }) => name !== victim)) {
      expect(["suspect", "down"], `seed ${seed}`).toContain(node.membership.member(victim as never)?.state);
    }
    run.network.run(limits.down - limits.suspect);
    for (const node of run.network.nodes().filter(({ name }) => name !== victim)) {
      expect(node.membership.member(victim as never)?.state, `seed ${seed}`).toBe("down");
    }
    run.network.run(6_000 - limits.down);
    for (const node of run.network.nodes().filter(({ name }) => name !== victim)) {
      expect(node.membership.member(victim as never), `seed ${seed}`).toBeUndefined();
    }
  }
}, 60_000);

test("a mesh split for 60 s whose seeds are all on one side, or dead, is one again within 5 s", () => {
  for (const hasSeed of [true, false]) {
    const run = startRun(3, { maxDelayMs: 10 });
    run.network.run(2_500);
    const left = run.names.slice(0, 3);
    const right = run.names.slice(3);
    if (!hasSeed) {
      for (const seed of run.names.slice(0, 2)) {
        run.network.kill(seed);
        run.killed.add(seed);
      }
    }
    for (const one of left) for (const two of right) inBothDirections(run, one, two);
    run.network.run(60_000);
    for (const name of right) {
      expect(run.network.node(name).membership.members().length).toBe(right.length - 1);
    }
    healAll(run);
    run.network.run(5_000);
    const count = run.names.length - run.killed.size;
    for (const node of run.network.nodes()) expect(node.seen("alive")).toHaveLength(count - 1);
  }
});
