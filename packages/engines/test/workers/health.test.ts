import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import type { Target } from "../../src/workers/index.ts";
import { type Answer, createHarness, healthy, makeSpec, startHarness } from "./fleet-harness.ts";

const failures: readonly [name: string, answer: Answer, reason: string][] = [
  ["refuses connections", "refused", "unreachable"],
  ["is silent", "silent", "timeout"],
  ["answers garbage", "garbled", "protocol"],
  ["answers 503", { status: 503 }, "status 503"],
  ["redirects", { status: 302 }, "status 302"],
];

test("a new engine is probed at once, and up with its first healthy answer", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  harness.fleet.apply([engine.spec]);
  expect(engine.times("/health")).toEqual([0]);
  expect(harness.record("a").state).toBe("starting");
  await harness.time.advanceAsync(0);
  expect(harness.record("a")).toMatchObject({
    state: "up",
    stateReason: "healthy",
    stateSinceWallMs: 1_700_000_000_000,
  });
  expect(harness.target("a").usable).toBe(true);
});

test("nothing is probed before the fleet starts, and everything after", async () => {
  const harness = createHarness();
  const engine = harness.engine("a");
  harness.fleet.apply([engine.spec]);
  await harness.time.advanceAsync(10_000);
  expect(engine.seen).toEqual([]);
  await harness.fleet.start();
  await harness.time.advanceAsync(0);
  expect(harness.record("a").state).toBe("up");
});

test("the probe is the configured path under the engine's address, with its prefix, and is bounded", async () => {
  const harness = await startHarness({ health: { path: "/v2/health/ready", timeoutMs: 300 } });
  const engine = harness.engine("a", { url: "http://a:8000" }, { "/v2/health/ready": healthy });
  await harness.apply(engine);
  expect(harness.record("a").state).toBe("up");
  expect(engine.seen[0]).toMatchObject({ url: "http://a:8000/v2/health/ready", timeoutMs: 300, maxBytes: 65_536 });
});

test.each(failures)("an engine that %s never comes up", async (_, answer, reason) => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/health": answer });
  await harness.apply(engine);
  await harness.time.advanceAsync(30_000);
  expect(harness.record("a").state).toBe("starting");
  expect(harness.target("a").usable).toBe(false);
  const warnings = harness.lines.filter(({ message }) => message === "engine is not healthy yet");
  expect(warnings).toHaveLength(1);
  expect(warnings[0]).toMatchObject({ level: "warn", fields: { engine: "a", reason, url: "http://a:8000" } });
});

test("of a new engine's failed probes the first is warned of", async () => {
  const harness = await startHarness();
  await harness.apply(harness.engine("a", {}, { "/health": "refused" }));
  expect(harness.lines.map(({ message }) => message)).toContain("engine is not healthy yet");
});

test.each(failures)("an engine that was up and %s is down after three probes", async (_, answer, reason) => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  await harness.apply(engine);
  engine.paths["/health"] = answer;
  for (let failed = 1; failed <= 3; failed++) {
    expect(harness.record("a").state).toBe("up");
    while (harness.record("a").health.consecutiveFailures < failed) await harness.time.advanceAsync(50);
  }
  expect(harness.record("a")).toMatchObject({ state: "down", stateReason: `3 failed probes, last: ${reason}` });
  expect(harness.target("a").usable).toBe(false);
});

test.each([
  ["late", "late", "event loop delay"],
  ["short", "local", "connection limit of this router"],
] as const)(
  "probes that this router itself is %s with count for nothing but as such, and are made again at their interval",
  async (want, outcome, reason) => {
    const harness = await startHarness();
    const engine = harness.engine("a");
    await harness.apply(engine);
    engine.paths["/health"] = want;
    const before = engine.times("/health").length;
    await harness.time.advanceAsync(120_000);
    const times = engine.times("/health").slice(before);
    expect(times.length).toBeGreaterThan(10);
    const gaps = times.slice(1).map((time, index) => Math.round(time - times[index]!));
    expect(new Set(gaps).size).toBe(1);
    expect(harness.meter.value("espalier_engine_health_probes_total", "a", outcome)).toBeGreaterThan(10);
    const reported = harness.lines.filter(({ message }) => message === "health probe ignored");
    expect(new Set(reported.map(({ fields }) => fields.reason))).toEqual(new Set([reason]));
    expect(harness.record("a")).toMatchObject({ state: "up", health: { consecutiveFailures: 0 } });
    expect(harness.target("a").usable).toBe(true);
    // One that is silent while the router has time is down as ever, whatever was before.
    engine.paths["/health"] = "silent";
    await harness.time.advanceAsync(20_000);
    expect(harness.record("a").state).toBe("down");
  },
);

test("whenever and however an engine dies, it is known to be down: within 6 seconds, or 11 if it keeps silent", async () => {
  const random = createSeededRandom(99);
  for (let seed = 1; seed <= 25; seed++) {
    const harness = await startHarness({}, seed);
    const engine = harness.engine("a");
    await harness.apply(engine);
    await harness.time.advanceAsync(5_000 + random.float() * 4_000);
    const diedMs = harness.time.clock.nowMs();
    const answer = failures[seed % failures.length]![1];
    engine.paths["/health"] = answer;
    while (harness.record("a").state === "up") await harness.time.advanceAsync(25);
    const limitMs = answer === "silent" ? 11_100 : 6_000;
    expect(harness.time.clock.nowMs() - diedMs, `seed ${seed}`).toBeLessThanOrEqual(limitMs);
    await harness.fleet.stop();
  }
});

// SGLang answers GET /health after 1 s of sleep at least, and the timeout was 1 s: whether an engine came up was luck.
// One that computes for seconds answers after as many, and was down while it served requests.
test.each([
  ["sleeps a second", 1_002],
  ["sleeps twice", 2_004],
])("an engine whose health check %s comes up and stays up", async (_, afterMs) => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/health": { status: 200, afterMs } });
  await harness.apply(engine);
  await harness.time.advanceAsync(afterMs);
  const changes: string[] = [];
  harness.fleet.onChange((change) => changes.push(change));
  await harness.time.advanceAsync(120_000);
  expect(harness.record("a")).toMatchObject({ state: "up", health: { consecutiveFailures: 0 } });
  expect(changes).not.toContain("state");
});

test.each<[string, (target: Target) => void]>([
  ["answers requests", ({ engine }) => engine.breaker.begin()?.success()],
  [
    "streams tokens",
    ({ load }) => {
      const ticket = load.begin({ promptTokens: 10, expectedOutputTokens: 10 });
      ticket.progress(3);
      ticket.end();
    },
  ],
])("an engine that %s is up however long its health check takes, and down soon after it stops", async (_, answer) => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  await harness.apply(engine);
  engine.paths["/health"] = { status: 200, afterMs: 8_000 };
  for (let second = 0; second < 60; second++) {
    await harness.time.advanceAsync(1_000);
    answer(harness.target("a"));
    expect(harness.record("a").state).toBe("up");
  }
  engine.paths["/health"] = "silent";
  await harness.time.advanceAsync(14_000);
  expect(harness.record("a").state).toBe("down");
});

test("an engine that answers requests but refuses its health check is down all the same", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  await harness.apply(engine);
  engine.paths["/health"] = { status: 503 };
  for (let second = 0; second < 7; second++) {
    harness.target("a").engine.breaker.begin()?.success();
    await harness.time.advanceAsync(1_000);
  }
  expect(harness.record("a").state).toBe("down");
});

test("failures that are not consecutive do not take an engine down", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  await harness.apply(engine);
  for (let round = 0; round < 5; round++) {
    engine.paths["/health"] = "refused";
    while (harness.record("a").health.consecutiveFailures < 2) await harness.time.advanceAsync(100);
    engine.paths["/health"] = healthy;
    while (harness.record("a").health.consecutiveFailures > 0) await harness.time.advanceAsync(100);
  }
  expect(harness.record("a").state).toBe("up");
});

test("a down engine needs two healthy answers in a row", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  await harness.apply(engine);
  engine.paths["/health"] = "refused";
  await harness.time.advanceAsync(10_000);
  expect(harness.record("a").state).toBe("down");
  engine.paths["/health"] = healthy;
  while (harness.record("a").health.consecutiveSuccesses < 1) await harness.time.advanceAsync(10);
  expect(harness.record("a").state).toBe("down");
  engine.paths["/health"] = "refused";
  await harness.time.advanceAsync(300);
  expect(harness.record("a")).toMatchObject({ state: "down", health: { consecutiveSuccesses: 0 } });
  engine.paths["/health"] = healthy;
  while (harness.record("a").health.consecutiveSuccesses < 1) await harness.time.advanceAsync(10);
  await harness.time.advanceAsync(300);
  expect(harness.record("a").state).toBe("up");
});

test("an engine that is not up is probed soon, then ever more rarely, and at least every two seconds", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/health": "refused" });
  await harness.apply(engine);
  await harness.time.advanceAsync(20_000);
  const times = engine.times("/health");
  const gaps = times.slice(1).map((time, index) => time - times[index]!);
  for (const [attempt, gap] of gaps.entries()) {
    const ceiling = Math.min(2_000, 250 * 2 ** attempt);
    expect(gap).toBeGreaterThanOrEqual(ceiling / 2);
    expect(gap).toBeLessThanOrEqual(ceiling);
  }
  expect(times.length).toBeGreaterThan(10);
});

test("an engine that is up is probed every two seconds, however long its answers take", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/health": { status: 200, afterMs: 700 } });
  await harness.apply(engine);
  await harness.time.advanceAsync(30_000);
  const times = engine.times("/health").slice(1);
  for (let i = 1; i < times.length; i++) expect(times[i]! - times[i - 1]!).toBeCloseTo(2_000, 6);
  expect(times.length).toBeGreaterThanOrEqual(13);
});

test("engines that come up together are not probed together", async () => {
  const harness = await startHarness();
  const engines = Array.from({ length: 40 }, (_, number) => harness.engine(`e${number}`));
  await harness.apply(...engines);
  await harness.time.advanceAsync(2_000);
  const second = engines.map((engine) => engine.times("/health")[1]!);
  for (let quarter = 0; quarter < 4; quarter++) {
    const inQuarter = second.filter((time) => time >= quarter * 500 && time < (quarter + 1) * 500);
    expect(inQuarter.length).toBeGreaterThan(2);
  }
});

test("an engine that went down is probed soon again, not as rarely as while it failed", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  await harness.apply(engine);
  engine.paths["/health"] = "refused";
  while (harness.record("a").state === "up") await harness.time.advanceAsync(10);
  const before = engine.times("/health").length;
  await harness.time.advanceAsync(1_000);
  expect(engine.times("/health").length - before).toBeGreaterThanOrEqual(2);
});

test("every change of state is logged with its reason", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  await harness.apply(engine);
  engine.paths["/health"] = { status: 500 };
  await harness.time.advanceAsync(8_000);
  engine.paths["/health"] = healthy;
  await harness.time.advanceAsync(8_000);
  harness.fleet.apply([]);
  const changes = harness.lines.filter(({ message }) => message === "engine state changed");
  expect(changes.map(({ level, fields }) => [level, fields.engine, fields.from, fields.to, fields.reason])).toEqual([
    ["info", "a", "starting", "up", "healthy"],
    ["warn", "a", "up", "down", "3 failed probes, last: status 500"],
    ["info", "a", "down", "up", "healthy"],
    ["info", "a", "up", "removed", "gone from discovery"],
  ]);
});

test("an answer that comes after the engine was removed changes nothing", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/health": { status: 200, afterMs: 500 } });
  await harness.apply(engine);
  const record = harness.record("a");
  harness.fleet.apply([]);
  await harness.time.advanceAsync(60_000);
  expect(record.state).toBe("removed");
  expect(engine.seen).toHaveLength(1);
  expect(harness.meter.names).toEqual([]);
});

test("a stopped fleet asks nothing more and leaves no timer", async () => {
  const harness = await startHarness();
  const up = harness.engine("up");
  const slow = harness.engine("slow", {}, { "/health": { status: 200, afterMs: 900 } });
  const dead = harness.engine("dead", {}, { "/health": "refused" });
  await harness.apply(up, slow, dead);
  for (let i = 0; i < 5; i++) harness.record("up").breaker.begin()?.failure("test");
  expect(harness.record("up").breaker.state).toBe("open");
  await harness.fleet.stop();
  const seen = [up, slow, dead].map((engine) => engine.seen.length);
  await harness.time.advanceAsync(60_000);
  expect([up, slow, dead].map((engine) => engine.seen.length)).toEqual(seen);
  expect(harness.record("slow").state).toBe("starting");
  expect(harness.time.pendingCount).toBe(0);
});

test("a stopped fleet has no timer from the moment it has stopped", async () => {
  const harness = await startHarness();
  await harness.apply(
    harness.engine("up"),
    harness.engine("dead", {}, { "/health": "refused" }),
    harness.engine("old"),
  );
  const ticket = harness.target("old").load.begin({ promptTokens: 1, expectedOutputTokens: 0 });
  for (const id of ["up", "old"]) {
    for (let i = 0; i < 5; i++) harness.record(id).breaker.begin()!.failure("test");
  }
  harness.fleet.apply([harness.record("up"), harness.record("dead")].map(({ id, url }) => makeSpec(id, { url })));
  expect(harness.record("old").state).toBe("removed");
  await harness.fleet.stop();
  expect(harness.time.pendingCount).toBe(0);
  ticket.end();
});

test("what is applied to a stopped fleet is not probed", async () => {
  const harness = await startHarness();
  await harness.fleet.stop();
  const engine = harness.engine("a");
  await harness.apply(engine);
  await harness.time.advanceAsync(10_000);
  expect(engine.seen).toEqual([]);
  expect(harness.record("a").state).toBe("starting");
});

test("a listener that stops the fleet as an engine comes up leaves nothing running", async () => {
  const harness = await startHarness();
  harness.fleet.onChange((change) => void (change === "state" && harness.fleet.stop()));
  await harness.apply(harness.engine("a"));
  expect(harness.record("a").state).toBe("up");
  expect(harness.time.pendingCount).toBe(0);
});

test("a listener that removes an engine as it comes up leaves nothing running", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  harness.fleet.onChange((change) => {
    if (change === "state") harness.fleet.apply([]);
  });
  await harness.apply(engine);
  await harness.time.advanceAsync(60_000);
  expect(engine.seen.map(({ path }) => path)).toEqual(["/health"]);
  expect(harness.fleet.engines).toEqual([]);
  expect(harness.time.pendingCount).toBe(0);
});

// A dead engine stayed "starting" for the reason "new", and any mistyped model was 503, which clients retry, for as long.
test.each(failures.filter(([, answer]) => typeof answer === "string"))(
  "a new engine that %s is unreachable after 30 probes, says why, and is up with one good answer",
  async (_, answer, reason) => {
    const harness = await startHarness();
    const engine = harness.engine("a", {}, { "/health": answer });
    await harness.apply(engine);
    await harness.time.advanceAsync(10_000);
    const { state, stateReason, health } = harness.record("a");
    expect([state, stateReason]).toEqual(["starting", `${health.consecutiveFailures} failed probes, last: ${reason}`]);
    await harness.time.advanceAsync(160_000);
    expect(harness.record("a")).toMatchObject({
      state: "unreachable",
      stateReason: `30 failed probes, last: ${reason}`,
    });
    expect(harness.target("a").usable).toBe(false);
    engine.paths["/health"] = healthy;
    await harness.time.advanceAsync(6_000);
    expect(harness.record("a").state).toBe("up");
  },
);

test("a new engine that answers 503 is starting for as long, also when nothing answered before", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/health": "refused" });
  await harness.apply(engine);
  await harness.time.advanceAsync(120_000);
  expect(harness.record("a").state).toBe("unreachable");
  engine.paths["/health"] = { status: 503 };
  await harness.time.advanceAsync(600_000);
  expect(harness.record("a").state).toBe("starting");
  expect(harness.record("a").stateReason).toContain("status 503");
});
