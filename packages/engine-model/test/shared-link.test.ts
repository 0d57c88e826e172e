import { createSeededRandom, type Random } from "@espalier/core";
import { createSharedLink, type LinkRates } from "@espalier/engine-model";
import { fixedSeeds } from "@espalier/testing";
import { expect, test } from "vitest";

interface Planned {
  readonly name: string;
  readonly to: string;
  readonly bytes: number;
  readonly startMs: number;
  /** When it is stopped, if it has not ended by then. */
  readonly stopMs: number;
}

/** Progressive filling: all rates grow together, and a transfer stops growing when a limit that it is under is reached. */
function referenceRates(flows: readonly { readonly to: string }[], { bytesPerSecond, pairBytesPerSecond }: LinkRates) {
  const rates = flows.map(() => 0);
  const isFixed = flows.map(() => false);
  while (isFixed.includes(false)) {
    const limits = [
      { under: flows.map(() => true), bytes: bytesPerSecond / 1_000 },
      ...[...new Set(flows.map(({ to }) => to))].map((to) => ({
        under: flows.map((flow) => flow.to === to),
        bytes: pairBytesPerSecond / 1_000,
      })),
    ];
    const growths = limits.map(({ under, bytes }) => {
      const used = rates.reduce((sum, rate, at) => sum + (under[at] ? rate : 0), 0);
      const growing = flows.filter((_, at) => under[at] && !isFixed[at]).length;
      return growing === 0 ? Number.POSITIVE_INFINITY : (bytes - used) / growing;
    });
    const growth = Math.min(...growths);
    for (const at of flows.keys()) if (!isFixed[at]) rates[at]! += growth;
    for (const [number, { under }] of limits.entries()) {
      if (growths[number]! > growth + 1e-12) continue;
      for (const at of flows.keys()) if (under[at]) isFixed[at] = true;
    }
  }
  return rates;
}

/** When each transfer ends, computed from one change to the next. */
function referenceEnds(plan: readonly Planned[], limits: LinkRates): Map<string, number> {
  const ends = new Map<string, number>();
  let active: { readonly planned: Planned; left: number }[] = [];
  let nowMs = 0;
  const moments = [...new Set(plan.flatMap(({ startMs, stopMs }) => [startMs, stopMs]))].sort((a, b) => a - b);
  for (const momentMs of [...moments, Number.POSITIVE_INFINITY]) {
    while (active.length > 0 && nowMs < momentMs) {
      const rates = referenceRates(
        active.map(({ planned }) => planned),
        limits,
      );
      const durations = active.map(({ left }, at) => left / rates[at]!);
      const stepMs = Math.min(momentMs - nowMs, ...durations);
      for (const [at, flow] of active.entries()) flow.left -= rates[at]! * stepMs;
      nowMs += stepMs;
      for (const { planned, left } of active) if (left <= 1e-6) ends.set(planned.name, nowMs);
      active = active.filter(({ left }) => left > 1e-6);
    }
    nowMs = momentMs;
    active = active.filter(({ planned }) => planned.stopMs !== momentMs);
    for (const planned of plan) if (planned.startMs === momentMs) active.push({ planned, left: planned.bytes });
  }
  return ends;
}

function randomPlan(random: Random): Planned[] {
  return Array.from({ length: 1 + random.integer(14) }, (_, at) => {
    const startMs = random.integer(12) * 7;
    return {
      name: `t${at}`,
      to: `e${random.integer(4)}`,
      bytes: 1 + random.integer(400),
      startMs,
      stopMs: random.float() < 0.2 ? startMs + 1 + random.integer(60) : Number.POSITIVE_INFINITY,
    };
  });
}

function linkEnds(plan: readonly Planned[], limits: LinkRates): Map<string, number> {
  const link = createSharedLink<Planned>(limits);
  const ends = new Map<string, number>();
  const takeUntil = (untilMs: number): void => {
    for (let at = link.nextEndMs(); at !== undefined && at <= untilMs; at = link.nextEndMs()) {
      for (const { name } of link.takeEnded()) ends.set(name, at);
    }
  };
  const finite = plan.flatMap(({ startMs, stopMs }) => [startMs, stopMs]).filter(Number.isFinite);
  for (const momentMs of [...new Set(finite)].sort((a, b) => a - b)) {
    takeUntil(momentMs);
    for (const planned of plan) if (planned.stopMs === momentMs) link.stop(planned, momentMs);
    for (const planned of plan) if (planned.startMs === momentMs) link.start(planned, planned, momentMs);
  }
  takeUntil(Number.POSITIVE_INFINITY);
  expect(link.size()).toBe(0);
  return ends;
}

test.each(fixedSeeds(40, 1))("transfers end when progressive filling says: seed %i", (seed) => {
  const random = createSeededRandom(seed);
  const limits = {
    bytesPerSecond: 1_000 * (1 + random.integer(20)),
    pairBytesPerSecond: 1_000 * (1 + random.integer(20)),
  };
  const plan = randomPlan(random);
  const [actual, wanted] = [linkEnds(plan, limits), referenceEnds(plan, limits)];
  expect([...actual.keys()].sort(), `seed ${seed}`).toEqual([...wanted.keys()].sort());
  for (const [name, endMs] of wanted) expect(actual.get(name), `seed ${seed}, ${name}`).toBeCloseTo(endMs, 4);
});

test.each(fixedSeeds(20, 1))(
  "no limit is exceeded, and the link is never idle while something can be sent: seed %i",
  (seed) => {
    const random = createSeededRandom(seed);
    const limits = { bytesPerSecond: 7_000, pairBytesPerSecond: 3_000 };
    const plan = randomPlan(random).map((planned) => ({ ...planned, startMs: 0, stopMs: Number.POSITIVE_INFINITY }));
    const ends = linkEnds(plan, limits);
    const lastMs = Math.max(...ends.values());
    const bytesTo = new Map<string, number>();
    for (const { to, bytes } of plan) bytesTo.set(to, (bytesTo.get(to) ?? 0) + bytes);
    const total = [...bytesTo.values()].reduce((sum, bytes) => sum + bytes, 0);
    expect(lastMs).toBeGreaterThanOrEqual(Math.max(total / 7, Math.max(...bytesTo.values()) / 3) - 1e-6);
    expect(lastMs).toBeLessThanOrEqual(total / 7 + Math.max(...bytesTo.values()) / 3 + 1e-6);
  },
);
