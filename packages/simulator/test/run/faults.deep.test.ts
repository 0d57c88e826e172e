import { expect, test, vi } from "vitest";
import type { FaultName } from "../../src/faults.ts";
import type { LinkModel, RunRecord } from "../../src/run.ts";
import { simulate } from "../../src/simulate.ts";
import { smallRun, smallScenario } from "./small-scenario.ts";

// Takes a second or two of a core, which busy machines make ten of.
vi.setConfig({ testTimeout: 60_000 });

/** A fault in the middle of so many seconds. */
function runWith(fault: FaultName, durationS: number, links: LinkModel): Promise<RunRecord> {
  const scenario = smallScenario({ fault, durationS, startsPerS: 4 });
  return simulate(smallRun({ scenario, links, routers: 3 }), () => 0);
}

const routersIn = ({ results }: RunRecord, fromMs: number, toMs: number): Set<number> =>
  new Set(results.filter(({ sentMs }) => sentMs >= fromMs && sentMs < toMs).map(({ router }) => router));

test("a run without a fault tells of none", async () => {
  expect((await simulate(smallRun({ requests: 3 }), () => 0)).faultMs).toBeUndefined();
});

/** `simulate partition` ran all its policies and failed: the run of one all-knowing router has no others to be cut off from. */
test.each(["partition", "router-loss", "rolling-restart"] as const)(
  "%s: the one router that sees everything is spared it, any other single one is refused",
  async (fault) => {
    const scenario = smallScenario({ fault, durationS: 30, startsPerS: 1 });
    const run = { scenario, routers: 1, links: "delays" } as const;
    const record = await simulate(smallRun({ ...run, sharing: "oracle" }), () => 0);
    expect(record.faultMs).toBeUndefined();
    expect(record.results.length).toBeGreaterThan(10);
    expect(record.results.every(({ error }) => error === undefined)).toBe(true);
    await expect(simulate(smallRun({ ...run, sharing: "mesh" }), () => 0)).rejects.toThrow(
      `${fault} needs at least 2 routers`,
    );
  },
);

test("a router that is lost answers nothing between its end and its next epoch", async () => {
  const record = await runWith("router-loss", 30, "delays");
  expect(record.faultMs).toEqual({ fromMs: 5_000, toMs: 25_000 });
  expect(routersIn(record, 0, 5_000)).toEqual(new Set([0, 1, 2]));
  const [lost] = [0, 1, 2].filter((router) => !routersIn(record, 5_000, 25_000).has(router));
  expect(lost).toBeDefined();
  expect(routersIn(record, 5_000, 25_000).size).toBe(2);
  expect(routersIn(record, 26_000, 31_000).has(lost!)).toBe(true);
  const errors = record.results.filter(({ error }) => error !== undefined);
  expect(errors.every(({ error, router }) => error === "the router went away" && router === lost)).toBe(true);
});

test("routers restart in turn without an error", async () => {
  const record = await runWith("rolling-restart", 20, "delays");
  expect(record.faultMs).toEqual({ fromMs: 2_500, toMs: 17_500 });
  expect(record.results.every(({ error }) => error === undefined)).toBe(true);
  for (let router = 0; router < 3; router++) {
    const leavesMs = 2_500 + router * 5_000;
    expect(routersIn(record, leavesMs + 1, leavesMs + 2_000).has(router)).toBe(false);
  }
  expect(routersIn(record, 17_500, 20_000)).toEqual(new Set([0, 1, 2]));
});

for (const links of ["real", "delays"] as const) {
  test(`one router more is used once it has joined (${links})`, async () => {
    const record = await runWith("join-under-load", 12, links);
    expect(record.faultMs).toEqual({ fromMs: 3_500, toMs: 8_500 });
    expect(routersIn(record, 0, 3_499)).toEqual(new Set([0, 1, 2]));
    expect(routersIn(record, 6_000, 12_000)).toEqual(new Set([0, 1, 2, 3]));
    expect(record.results.every(({ error }) => error === undefined)).toBe(true);
  });
}

test("an engine that is lost costs what had begun there, and its load is not counted while it is gone", async () => {
  const record = await runWith("engine-churn", 10, "delays");
  expect(record.faultMs).toEqual({ fromMs: 4_000, toMs: 6_000 });
  const errors = record.results.filter(({ error }) => error !== undefined);
  expect(errors.every(({ error }) => error === "the engine went away")).toBe(true);
  expect(errors.every(({ endMs }) => endMs > 4_000 && endMs < 4_010)).toBe(true);
});

test("engines that become slow stay so to the end of the run", async () => {
  const record = await runWith("slow-engines", 20, "delays");
  expect(record.faultMs).toEqual({ fromMs: 10_000, toMs: 20_000 });
  const stepsMs = (engine: number, fromMs: number, toMs: number): number => {
    const sent = record.results.filter((one) => one.engine === engine && one.sentMs >= fromMs && one.endMs < toMs);
    const each = sent.map(({ request, firstTokenMs, endMs }) => (endMs - firstTokenMs) / (request.outputTokens - 1));
    return each.reduce((sum, one) => sum + one, 0) / each.length;
  };
  const growths = [0, 1, 2, 3].map((engine) => stepsMs(engine, 10_000, Infinity) / stepsMs(engine, 0, 10_000));
  expect(growths.filter((growth) => growth > 3)).toHaveLength(1);
  expect(growths.filter((growth) => growth < 2)).toHaveLength(3);
});

test("a run that is too short for its fault, or a fleet too small, is refused", async () => {
  await expect(runWith("router-loss", 20, "delays")).rejects.toThrow(RangeError);
  const scenario = smallScenario({ fault: "partition", durationS: 60 });
  await expect(simulate(smallRun({ scenario, routers: 1 }), () => 0)).rejects.toThrow(RangeError);
});
