import fc from "fast-check";
import { expect, test } from "vitest";
import { type Harness, startHarness } from "./fleet-harness.ts";

type Verdict = "success" | "failure" | "refused" | "release";

/** One engine that stays healthy to probes throughout, so that only its breaker decides. */
async function startOne(seed = 1): Promise<Harness> {
  const harness = await startHarness({}, seed);
  await harness.apply(harness.engine("a"));
  return harness;
}

function send(harness: Harness, verdict: Verdict): void {
  const permit = harness.record("a").breaker.begin();
  if (verdict === "failure") permit!.failure("upstream_reset");
  else permit![verdict]();
}

function sendAll(harness: Harness, ...verdicts: readonly Verdict[]): void {
  for (const verdict of verdicts) send(harness, verdict);
}

const times = (count: number, verdict: Verdict): Verdict[] => Array.from({ length: count }, () => verdict);

/** Waits until the breaker leaves `open`. */
async function waitForTrial(harness: Harness): Promise<number> {
  const startMs = harness.time.clock.nowMs();
  while (harness.record("a").breaker.state === "open") await harness.time.advanceAsync(10);
  return harness.time.clock.nowMs() - startMs;
}

test.each<[string, Verdict[], "closed" | "open"]>([
  ["no request", [], "closed"],
  ["4 consecutive failures", times(4, "failure"), "closed"],
  ["5 consecutive failures", times(5, "failure"), "open"],
  ["a success between failures", [...times(4, "failure"), "success", ...times(4, "failure")], "closed"],
  ["a release between failures, which changes nothing", [...times(4, "failure"), "release", "failure"], "open"],
  [
    "19 results, most of them failures",
    [
      ...times(4, "failure"),
      "success",
      ...times(4, "failure"),
      "success",
      ...times(4, "failure"),
      "success",
      ...times(4, "failure"),
    ],
    "closed",
  ],
  ["20 results, half of them failures", Array.from({ length: 20 }, (_, i) => (i % 2 ? "success" : "failure")), "open"],
  [
    "20 results, 9 of them failures",
    [...times(2, "success"), ...Array.from({ length: 18 }, (_, i): Verdict => (i % 2 ? "success" : "failure"))],
    "closed",
  ],
  ["any number of releases", times(200, "release"), "closed"],
])("after %s the breaker is %s", async (_, verdicts, state) => {
  const harness = await startOne();
  sendAll(harness, ...(verdicts as Verdict[]));
  expect(harness.record("a").breaker.state).toBe(state);
  expect(harness.target("a").usable).toBe(state === "closed");
});

test("an engine that is healthy to probes but fails requests is not used", async () => {
  const harness = await startOne();
  expect(harness.fleet.usableCount()).toBe(1);
  sendAll(harness, ...times(5, "failure"));
  expect(harness.record("a")).toMatchObject({ state: "up", breaker: { state: "open", allows: false } });
  expect(harness.record("a").breaker.begin()).toBeUndefined();
  expect(harness.fleet.usableCount()).toBe(0);
  expect(harness.fleet.pool("m")).toHaveLength(1);
});

test("failures older than the window do not count", async () => {
  const harness = await startOne();
  for (let round = 0; round < 10; round++) {
    sendAll(harness, "failure", "success");
    await harness.time.advanceAsync(1_200);
  }
  expect(harness.record("a").breaker.state).toBe("closed");
  await harness.time.advanceAsync(11_000);
  sendAll(harness, ...times(10, "success"), ...times(4, "failure"), "success", ...times(4, "failure"));
  expect(harness.record("a").breaker.state).toBe("closed");
  send(harness, "success");
  sendAll(harness, ...times(2, "failure"));
  expect(harness.record("a").breaker.state).toBe("closed");
});

test("two successful trials, one at a time, close the breaker", async () => {
  const harness = await startOne();
  sendAll(harness, ...times(5, "failure"));
  await waitForTrial(harness);
  const { breaker } = harness.record("a");
  expect(breaker).toMatchObject({ state: "half-open", allows: true });
  const trial = breaker.begin();
  expect(breaker.allows).toBe(false);
  expect(breaker.begin()).toBeUndefined();
  expect(harness.target("a").usable).toBe(false);
  trial!.success();
  expect(breaker).toMatchObject({ state: "half-open", allows: true });
  send(harness, "success");
  expect(breaker.state).toBe("closed");
  sendAll(harness, ...times(4, "failure"));
  expect(breaker.state).toBe("closed");
});

test("an aborted trial makes room for the next one, and is not a success", async () => {
  const harness = await startOne();
  sendAll(harness, ...times(5, "failure"));
  await waitForTrial(harness);
  const { breaker } = harness.record("a");
  for (let aborted = 0; aborted < 20; aborted++) {
    const trial = breaker.begin();
    expect(breaker.allows).toBe(false);
    trial!.release();
    trial!.success();
    trial!.failure("late");
    expect(breaker).toMatchObject({ state: "half-open", allows: true });
  }
  sendAll(harness, "success", "success");
  expect(breaker.state).toBe("closed");
});

test("a settled trial cannot free or fail the one that runs after it", async () => {
  const harness = await startOne();
  sendAll(harness, ...times(5, "failure"));
  await waitForTrial(harness);
  const { breaker } = harness.record("a");
  const first = breaker.begin()!;
  first.success();
  const second = breaker.begin()!;
  first.release();
  first.failure("late");
  expect(breaker).toMatchObject({ state: "half-open", allows: false });
  second.success();
  expect(breaker.state).toBe("closed");
});

test("a failed trial opens the breaker for longer, up to 30 seconds, and closing starts over", async () => {
  const harness = await startOne(5);
  sendAll(harness, ...times(5, "failure"));
  for (const ceilingMs of [2_000, 4_000, 8_000, 16_000, 30_000, 30_000]) {
    const openMs = await waitForTrial(harness);
    expect(openMs).toBeGreaterThanOrEqual(ceilingMs / 2);
    expect(openMs).toBeLessThanOrEqual(ceilingMs + 10);
    send(harness, "failure");
    expect(harness.record("a").breaker.reason).toBe("trial failed: upstream_reset");
  }
  await waitForTrial(harness);
  sendAll(harness, "success", "success", ...times(5, "failure"));
  expect(await waitForTrial(harness)).toBeLessThanOrEqual(2_010);
});

test("successes of an earlier round of trials do not count in the next", async () => {
  const harness = await startOne();
  sendAll(harness, ...times(5, "failure"));
  await waitForTrial(harness);
  sendAll(harness, "success", "failure");
  expect(harness.record("a").breaker.state).toBe("open");
  await waitForTrial(harness);
  send(harness, "success");
  expect(harness.record("a").breaker.state).toBe("half-open");
  send(harness, "success");
  expect(harness.record("a").breaker.state).toBe("closed");
});

test("failures from before an opening do not count after the breaker has closed", async () => {
  const harness = await startOne();
  sendAll(harness, ...Array.from({ length: 20 }, (_, i): Verdict => (i % 2 ? "success" : "failure")));
  await waitForTrial(harness);
  sendAll(harness, "success", "success");
  expect(harness.time.clock.nowMs()).toBeLessThan(3_000);
  sendAll(harness, "failure", "success", "failure");
  expect(harness.record("a").breaker.state).toBe("closed");
});

test("a breaker that waits for a trial while its engine is down is ready when the engine is", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  await harness.apply(engine);
  sendAll(harness, ...times(5, "failure"));
  engine.paths["/health"] = "refused";
  await harness.time.advanceAsync(30_000);
  expect(harness.record("a")).toMatchObject({ state: "down", breaker: { state: "half-open" } });
  expect(harness.target("a").usable).toBe(false);
  engine.paths["/health"] = { status: 200 };
  await harness.time.advanceAsync(4_000);
  expect(harness.target("a").usable).toBe(true);
});

test("a result of a request that began before the last change of state does not count", async () => {
  const harness = await startOne();
  const { breaker } = harness.record("a");
  const old = Array.from({ length: 12 }, () => breaker.begin()!);
  sendAll(harness, ...times(5, "failure"));
  old[0]!.failure("late");
  expect(breaker.reason).toBe("5 consecutive failures, last: upstream_reset");
  await waitForTrial(harness);
  old[1]!.failure("late");
  old[2]!.success();
  old[3]!.success();
  expect(breaker.state).toBe("half-open");
  const trial = breaker.begin()!;
  old[4]!.release();
  expect(breaker.allows).toBe(false);
  trial.success();
  send(harness, "success");
  for (const permit of old.slice(5)) permit.failure("late");
  expect(breaker.state).toBe("closed");
});

test("every change of state is logged, metered and told of", async () => {
  const harness = await startOne();
  const reported: string[] = [];
  harness.fleet.onChange((change, engine) => reported.push(`${change} ${engine.breaker.state}`));
  const gauge = (): number | undefined => harness.meter.value("espalier_engine_breaker_state", "a");
  expect(gauge()).toBe(0);
  sendAll(harness, ...times(5, "failure"));
  expect(gauge()).toBe(2);
  await waitForTrial(harness);
  expect(gauge()).toBe(1);
  sendAll(harness, "success", "success");
  expect(gauge()).toBe(0);
  expect(reported).toEqual(["breaker open", "breaker half-open", "breaker closed"]);
  const lines = harness.lines.filter(({ message }) => message === "engine breaker changed");
  expect(lines.map(({ level, fields }) => [level, fields.from, fields.to, fields.reason])).toEqual([
    ["warn", "closed", "open", "5 consecutive failures, last: upstream_reset"],
    ["info", "open", "half-open", "time for a trial"],
    ["info", "half-open", "closed", "trials succeeded"],
  ]);
});

test("the share of failures is logged with its numbers", async () => {
  const harness = await startOne();
  sendAll(harness, ...times(10, "success"), ...times(4, "failure"), "success", ...times(4, "failure"), "success");
  expect(harness.record("a").breaker.state).toBe("closed");
  sendAll(harness, ...times(2, "failure"));
  expect(harness.record("a").breaker.state).toBe("closed");
  sendAll(harness, ...times(2, "failure"));
  expect(harness.record("a").breaker.reason).toBe("12 of 24 requests failed, last: upstream_reset");
});

/** The obvious breaker: keeps every result with the second it came in, and counts on each one. */
function naiveOpensAt(results: readonly { readonly atMs: number; readonly failed: boolean }[]): number | undefined {
  for (let last = 0; last < results.length; last++) {
    const second = Math.floor(results[last]!.atMs / 1_000);
    const seen = results.slice(0, last + 1);
    const inWindow = seen.filter(({ atMs }) => Math.floor(atMs / 1_000) > second - 10);
    const failed = inWindow.filter((result) => result.failed).length;
    const isRun = seen.length >= 5 && seen.slice(-5).every((result) => result.failed);
    if (isRun || (inWindow.length >= 20 && failed >= inWindow.length / 2)) return last;
  }
  return undefined;
}

test("the breaker opens exactly when the naive one does", async () => {
  const gaps = fc.oneof({ arbitrary: fc.nat(300), weight: 20 }, { arbitrary: fc.nat(15_000), weight: 1 });
  const results = fc.array(fc.record({ gapMs: gaps, failed: fc.boolean() }), { maxLength: 120, size: "max" });
  let opened = 0;
  await fc.assert(
    fc.asyncProperty(results, async (steps) => {
      const harness = await startHarness();
      harness.fleet.apply([harness.engine("a").spec]);
      await harness.fleet.stop();
      const timed: { atMs: number; failed: boolean }[] = [];
      for (const { gapMs, failed } of steps) timed.push({ atMs: (timed.at(-1)?.atMs ?? 0) + gapMs, failed });
      const expected = naiveOpensAt(timed);
      if (expected !== undefined) opened += 1;
      for (const [number, result] of timed.entries()) {
        harness.time.advance(result.atMs - harness.time.clock.nowMs());
        send(harness, result.failed ? "failure" : "success");
        expect(harness.record("a").breaker.state).toBe(number === expected ? "open" : "closed");
        if (number === expected) break;
      }
    }),
    { numRuns: 200, seed: 11 },
  );
  expect(opened).toBeGreaterThan(20);
});

test("what was counted before it opened is not taken away again from what is counted once it has closed", async () => {
  const harness = await startOne();
  const mixed = Array.from({ length: 10 }, (): Verdict[] => ["success", "failure"]).flat();
  const { breaker } = harness.record("a");
  const windowMs = 10_000;
  for (let round = 0; round < 3; round++) {
    sendAll(harness, ...mixed);
    expect([breaker.state, breaker.reason]).toEqual(["open", "10 of 20 requests failed, last: upstream_reset"]);
    await waitForTrial(harness);
    while (breaker.state === "half-open") send(harness, "success");
    expect(breaker.state).toBe("closed");
    await harness.time.advanceAsync(windowMs);
  }
});

/**
 * A replica that answers every request with a fast client error, which the others would not give, draws the traffic: it is
 * always idle. Only the same request at another engine tells its errors from those of clients.
 */
test("an engine is suspect after 5 client errors without a success between, and a success ends that", async () => {
  const harness = await startOne();
  const { breaker } = harness.record("a");
  sendAll(harness, ...times(4, "refused"), "release");
  expect(breaker.isSuspect).toBe(false);
  send(harness, "refused");
  expect([breaker.isSuspect, breaker.state]).toEqual([true, "closed"]);
  sendAll(harness, ...times(5, "failure"));
  expect([breaker.isSuspect, breaker.state]).toEqual([true, "open"]);
  await waitForTrial(harness);
  expect(breaker.isSuspect).toBe(true);
  send(harness, "success");
  expect(breaker.isSuspect).toBe(false);
});
