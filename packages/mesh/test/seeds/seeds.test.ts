import { createSeededRandom, silentMeter } from "@espalier/core";
import { createRecordingLogger, createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import type { FoundSeeds } from "../../src/seeds/seeds.ts";
import {
  createDialList,
  formatAddress,
  maxSeedAddresses,
  parseSeed,
  resolveHost,
  Seeds,
} from "../../src/seeds/seeds.ts";

type Answer = readonly string[] | Error | "never";

/** What finds seeds, as a test has it find them. */
function createFound(first: readonly string[] = [], isTried = true) {
  const listeners = new Set<() => void>();
  let state = { seeds: first, isTried };
  const found: FoundSeeds = {
    seeds: () => state.seeds,
    get isTried() {
      return state.isTried;
    },
    onChange(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
  return {
    ...{ found, listeners },
    give(...seeds: readonly string[]): void {
      state = { seeds, isTried: true };
      for (const listener of listeners) listener();
    },
  };
}

function setUp(seeds: readonly string[], answers: Record<string, Answer> = {}, found?: FoundSeeds) {
  const time = createVirtualTime();
  const logger = createRecordingLogger();
  const dialing = new Set<string>();
  const asked: { readonly host: string; readonly atMs: number }[] = [];
  const reached = new Set<string>();
  const selves = new Set<string>();
  const under = new Seeds({
    seeds,
    ...(found && { found }),
    resolve(host) {
      asked.push({ host, atMs: time.clock.nowMs() });
      const answer = answers[host] ?? new Error(`${host} has no address`);
      if (answer === "never") return new Promise(() => {});
      return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer);
    },
    scheduler: time.scheduler,
    random: createSeededRandom(1),
    dial: (address) => dialing.add(address),
    forget: (address) => dialing.delete(address),
    isSelf: (address) => selves.has(address),
    isReached: (address) => reached.has(address),
    meter: silentMeter,
    logger,
  });
  return { time, logger, dialing, asked, answers, reached, selves, seeds: under };
}

const self = { kind: "rejected", reason: "self", detail: "" } as const;

test.each([
  ["10.0.0.1:7000", "10.0.0.1", 7000, false],
  ["router-0.mesh.svc:7946", "router-0.mesh.svc", 7946, true],
  ["[fd00::1]:80", "fd00::1", 80, false],
])("%s is a seed", (text, host, port, isName) => {
  expect(parseSeed(text)).toEqual({ host, port, isName });
  expect(formatAddress(host, port)).toBe(text);
});

test.each([
  "",
  "host",
  "host:",
  ":80",
  "host:0",
  "host:65536",
  "fd00::1:80",
  "[host]:80",
  "a b:80",
  "http://h:80",
  "h:8o",
])("%j is no seed", (text) => expect(() => parseSeed(text)).toThrow(RangeError));

test("addresses are dialed at once, names when they are resolved", async () => {
  const { seeds, dialing, time } = setUp(["10.0.0.1:7000", "[::1]:7000", "mesh:7000"], {
    mesh: ["10.0.0.3", "fd00::2"],
  });
  expect(seeds.isResolved).toBe(false);
  seeds.start();
  expect([...dialing]).toEqual(["10.0.0.1:7000", "[::1]:7000"]);
  await time.advanceAsync(1);
  expect([...dialing].slice(2)).toEqual(["10.0.0.3:7000", "[fd00::2]:7000"]);
  expect(seeds.isResolved).toBe(true);
  seeds.stop();
  expect(dialing.size).toBe(0);
  expect(time.pendingCount).toBe(0);
});

test("names are resolved every 5 s, give or take a fifth, for ever", async () => {
  const { seeds, asked, time } = setUp(["mesh:7000"], { mesh: ["10.0.0.3"] });
  seeds.start();
  await time.advanceAsync(60_000);
  const gaps = asked.slice(1).map(({ atMs }, index) => atMs - asked[index]!.atMs);
  expect(gaps.length).toBeGreaterThanOrEqual(9);
  for (const gap of gaps) {
    expect(gap).toBeGreaterThanOrEqual(4_000);
    expect(gap).toBeLessThanOrEqual(6_000);
  }
  expect(new Set(gaps).size).toBeGreaterThan(5);
  seeds.stop();
  const { length } = asked;
  await time.advanceAsync(60_000);
  expect(asked).toHaveLength(length);
});

test("addresses come and go with the name; an outage of the resolver changes nothing", async () => {
  const { seeds, answers, dialing, logger, time } = setUp(["mesh:1"], { mesh: ["10.0.0.1", "10.0.0.2"] });
  seeds.start();
  await time.advanceAsync(1_000);
  answers.mesh = ["10.0.0.2", "10.0.0.3", "10.0.0.3"];
  await time.advanceAsync(6_000);
  expect([...dialing].sort()).toEqual(["10.0.0.2:1", "10.0.0.3:1"]);
  answers.mesh = new Error("SERVFAIL");
  await time.advanceAsync(60_000);
  expect([...dialing].sort()).toEqual(["10.0.0.2:1", "10.0.0.3:1"]);
  expect(logger.lines.filter(({ level }) => level === "warn")).toHaveLength(1);
  answers.mesh = [];
  await time.advanceAsync(6_000);
  expect(dialing.size).toBe(0);
  answers.mesh = ["10.0.0.9"];
  await time.advanceAsync(6_000);
  expect([...dialing]).toEqual(["10.0.0.9:1"]);
});

test("a name that is never answered does not end the others' rounds", async () => {
  const { seeds, answers, dialing, time } = setUp(["dead:1", "mesh:1"], { dead: "never", mesh: ["10.0.0.1"] });
  seeds.start();
  await time.advanceAsync(1);
  expect([...dialing]).toEqual(["10.0.0.1:1"]);
  expect(seeds.isResolved).toBe(false);
  answers.mesh = ["10.0.0.2"];
  await time.advanceAsync(22_000);
  expect([...dialing]).toEqual(["10.0.0.2:1"]);
  expect(seeds.isResolved).toBe(true);
});

test("this router's own address is not dialed, known beforehand or by meeting itself", async () => {
  const { seeds, answers, dialing, selves, time } = setUp(["mesh:1"], { mesh: ["10.0.0.1", "10.0.0.2", "10.0.0.3"] });
  selves.add("10.0.0.1:1");
  seeds.start();
  await time.advanceAsync(1);
  expect([...dialing]).toEqual(["10.0.0.2:1", "10.0.0.3:1"]);
  seeds.dialFailed("10.0.0.2:1", { kind: "refused" });
  seeds.dialFailed("10.0.0.3:1", self);
  seeds.dialFailed("10.9.9.9:1", self);
  expect([...dialing]).toEqual(["10.0.0.2:1"]);
  await time.advanceAsync(20_000);
  expect(seeds.addresses()).toEqual(["10.0.0.2:1"]);
  // Once the name has stood for something else meanwhile, the address may be another router's.
  answers.mesh = ["10.0.0.2"];
  await time.advanceAsync(6_000);
  answers.mesh = ["10.0.0.2", "10.0.0.3"];
  await time.advanceAsync(6_000);
  expect([...dialing]).toEqual(["10.0.0.2:1", "10.0.0.3:1"]);
});

test("a seed that is a live member is left to the membership, and dialed again when it is not", async () => {
  const { seeds, dialing, reached, time } = setUp(["10.0.0.1:1"]);
  seeds.start();
  expect(dialing.size).toBe(1);
  reached.add("10.0.0.1:1");
  await time.advanceAsync(6_000);
  expect(dialing.size).toBe(0);
  reached.clear();
  await time.advanceAsync(6_000);
  expect(dialing.size).toBe(1);
});

test("one address more than the bound is not dialed", async () => {
  const many = Array.from({ length: maxSeedAddresses + 1 }, (_, index) => `10.0.${index >> 8}.${index & 255}`);
  const { seeds, dialing, logger, time } = setUp(["mesh:1"], { mesh: many });
  seeds.start();
  await time.advanceAsync(30_000);
  expect(dialing.size).toBe(maxSeedAddresses);
  expect(logger.lines.filter(({ message }) => message.includes("too many addresses"))).toHaveLength(1);
});

test("seeds that are found are dialed as they come, beside the fixed ones, and forgotten as they go", async () => {
  const source = createFound(["10.0.0.2:1"]);
  const { seeds, dialing, time } = setUp(["10.0.0.1:1"], {}, source.found);
  expect(source.listeners.size).toBe(0);
  seeds.start();
  expect([...dialing]).toEqual(["10.0.0.1:1", "10.0.0.2:1"]);
  source.give("10.0.0.3:1", "10.0.0.1:1");
  expect([...dialing]).toEqual(["10.0.0.1:1", "10.0.0.3:1"]);
  source.give();
  expect([...dialing]).toEqual(["10.0.0.1:1"]);
  seeds.stop();
  expect([dialing.size, source.listeners.size, time.pendingCount]).toEqual([0, 0, 0]);
});

test("a name that is found is resolved at once, and what is known of the names that stay stays", async () => {
  const source = createFound();
  const { seeds, answers, asked, dialing, time } = setUp(
    ["mesh:1"],
    { mesh: ["10.0.0.1"], other: ["10.0.0.2"] },
    source.found,
  );
  seeds.start();
  await time.advanceAsync(1);
  answers.mesh = new Error("SERVFAIL");
  source.give("other:1", "10.0.0.3:1");
  expect(seeds.isResolved).toBe(false);
  await time.advanceAsync(1);
  expect(seeds.isResolved).toBe(true);
  expect([...dialing].sort()).toEqual(["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"]);
  const before = asked.length;
  source.give("other:1");
  await time.advanceAsync(1);
  expect(asked).toHaveLength(before);
  expect([...dialing].sort()).toEqual(["10.0.0.1:1", "10.0.0.2:1"]);
  // One round of questions goes on, not one for each change.
  await time.advanceAsync(60_000);
  const rounds = (asked.length - before) / 2;
  expect(rounds).toBeGreaterThanOrEqual(9);
  expect(rounds).toBeLessThanOrEqual(15);
  seeds.stop();
  expect(time.pendingCount).toBe(0);
});

test("while what finds seeds has not tried, not everything is resolved", () => {
  const source = createFound([], false);
  const { seeds } = setUp([], {}, source.found);
  seeds.start();
  expect(seeds.isResolved).toBe(false);
  source.give();
  expect(seeds.isResolved).toBe(true);
});

test("this router's own address among those that are found is not dialed, and one past the bound neither", () => {
  const source = createFound();
  const { seeds, dialing, selves } = setUp([], {}, source.found);
  selves.add("10.0.0.1:1");
  seeds.start();
  source.give("10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1");
  seeds.dialFailed("10.0.0.2:1", self);
  expect([...dialing]).toEqual(["10.0.0.3:1"]);
  source.give(...Array.from({ length: maxSeedAddresses + 1 }, (_, at) => `10.1.${at >> 8}.${at & 255}:1`));
  expect(dialing.size).toBe(maxSeedAddresses);
});

test("an address is forgotten when the last of those who dial it forgets it", () => {
  const log: string[] = [];
  const list = createDialList({ dial: (to) => log.push(`dial ${to}`), forget: (to) => log.push(`forget ${to}`) });
  const [one, other] = [list.user(), list.user()];
  one.dial("x");
  other.dial("x");
  one.forget("x");
  one.forget("x");
  one.dial("y");
  other.forget("y");
  expect(log).toEqual(["dial x", "dial x", "dial y"]);
  other.forget("x");
  other.forget("x");
  expect(log).toEqual(["dial x", "dial x", "dial y", "forget x"]);
});

test("the system resolves localhost", async () => {
  const addresses = await resolveHost("localhost");
  expect(addresses.some((address) => address === "127.0.0.1" || address === "::1")).toBe(true);
});
