import { createSeededRandom } from "@espalier/core";
import { tier } from "@espalier/prefix-index";
import { describe, expect, test } from "vitest";
import { replicationSuite } from "../src/suites/replication.ts";
import { type FlowShape, ReplicationFlow } from "../src/suites/replication-flow.ts";
import { measureRestarts } from "../src/suites/replication-restarts.ts";
import { livingMember, newTime, opsOf, playStep, RigRouter, recordStep } from "../src/suites/replication-rig.ts";
import { measureTurnover, type ReplicationSizes, runReplicationOnce } from "../src/suites/replication-run.ts";
import { measureWire } from "../src/suites/replication-wire.ts";
import { SyntheticFeed } from "../src/support/synthetic-feed.ts";
import { UsageError } from "../src/support/usage-error.ts";

const flowShape: FlowShape = { owners: 3, feeds: 6, blocksPerFeed: 200, tickMs: 25, seed: 1 };
const tiny: ReplicationSizes = {
  flow: flowShape,
  rateSeconds: 0.1,
  turnover: flowShape,
  turnovers: 3,
  wire: { feeds: 2, blocksPerFeed: 200, ratePerS: 2_000, seconds: 1, seed: 1 },
  restarts: { epochs: 12, routers: 3, feeds: 2, blocksPerFeed: 100, seed: 1 },
};

/** CPU time of a millisecond for each reading. */
function steppingCpu() {
  let readMs = 0;
  return () => readMs++;
}

test("what is recorded is played as it was", () => {
  const feedOf = () => new SyntheticFeed({ random: createSeededRandom(4), seed: 4, liveBlocks: 300 });
  const [recorded, live] = [feedOf(), feedOf()];
  const reported: string[] = [];
  const sinkTo = (lines: string[]) => ({
    stored: (inTier: number, words: Uint32Array, from: number, to: number) =>
      void lines.push(`stored ${inTier} ${words.slice(2 * from, 2 * to).join()}`),
    removed: (inTier: number, words: Uint32Array, from: number, to: number) =>
      void lines.push(`removed ${inTier} ${words.slice(2 * from, 2 * to).join()}`),
    orphaned: () => expect.fail("a hole"),
    holeGone: () => expect.fail("a hole is gone"),
    cleared: () => expect.fail("cleared"),
  });
  const expected: string[] = [];
  for (let message = 0; message < 300; message++) {
    const step = recordStep(recorded);
    playStep(step, sinkTo(reported));
    expect(opsOf(step)).toBe(live.step(sinkTo(expected)));
  }
  expect(reported).toEqual(expected);
  expect(reported.some((line) => line.startsWith(`removed ${tier.gpu} `))).toBe(true);
});

test("a router's commits are taken by another, in order, and a second time refused", () => {
  const [writer, reader] = ["writer", "reader"].map((name) => new RigRouter(name, newTime(), 15));
  const { feed, reader: feedReader } = writer!.open("engine/0", 200, 1);
  reader!.replica.setMembers([livingMember(writer!)]);
  for (let message = 0; message < 50; message++) {
    feed.step(feedReader.sink);
    feedReader.batch(feed.mark(1_000 * message), true);
    writer!.time.advance(20);
  }
  const updates = writer!.outbox.splice(0);
  expect(updates.length).toBeGreaterThan(40);
  reader!.take(updates);
  const [here, there] = [reader!, writer!].map(({ replica }) => replica.fold.statement("engine/0"));
  expect(here).toEqual(there);
  expect(here?.blocks).toBe(feed.blocks);
  expect(reader!.sizes()).toMatchObject({ blocks: feed.blocks, fold: 0 });
  expect(() => reader!.take(updates.slice(-1))).toThrow(/duplicate/);
});

test("an update that leaves something out is not taken", () => {
  const [writer, reader] = ["writer", "reader"].map((name) => new RigRouter(name, newTime(), 15));
  const { feed, reader: feedReader } = writer!.open("engine/0", 200, 1);
  for (let message = 0; message < 10; message++) {
    feed.step(feedReader.sink);
    feedReader.batch(feed.mark(message), true);
    writer!.time.advance(20);
  }
  expect(() => reader!.take(writer!.outbox.slice(3))).toThrow(/gap/);
});

describe("a flow", () => {
  test("fills every engine, and brings all of it to the measured router", () => {
    const flow = new ReplicationFlow(flowShape, steppingCpu());
    flow.fill();
    flow.check();
    const { blocks, journals } = flow.measured.sizes();
    expect(blocks).toBeGreaterThanOrEqual(6 * (200 - 68));
    expect(blocks).toBeLessThanOrEqual(6 * 200);
    expect(journals).toBeGreaterThan(8 * blocks);
    expect(flow.measured.feeds).toHaveLength(2);
    flow.stop();
  });

  test("each tick has the changes that are asked for, in the share of each router", () => {
    const flow = new ReplicationFlow(flowShape, steppingCpu());
    flow.fill();
    let own = 0;
    let others = 0;
    for (let tick = 0; tick < 40; tick++) {
      const measured = flow.tick(300);
      expect(measured.ownOps + measured.othersOps).toBeGreaterThanOrEqual(300);
      expect(measured.ownOps + measured.othersOps).toBeLessThan(300 + 2 * 68);
      expect(measured).toMatchObject({ ownMs: 1, othersMs: 1 });
      expect(measured.yjsBytes).toBeGreaterThan(4 * measured.othersOps);
      own += measured.ownOps;
      others += measured.othersOps;
    }
    expect(own / (own + others)).toBeGreaterThan(0.25);
    expect(own / (own + others)).toBeLessThan(0.42);
    flow.check();
    flow.stop();
  });

  test.each([1, 2, 3])("holds what the engines hold through many replacements, seed %i", (seed) => {
    const flow = new ReplicationFlow({ ...flowShape, seed }, steppingCpu());
    flow.fill();
    for (let tick = 0; tick < 100; tick++) flow.tick(500);
    flow.check();
    flow.stop();
  });

  test("notices when something is missing", () => {
    const flow = new ReplicationFlow(flowShape, steppingCpu());
    flow.fill();
    const { feed, reader } = flow.measured.feeds[0]!;
    feed.step(reader.sink);
    expect(() => flow.check()).toThrow(/engine-0\/0 has \d+ blocks \(current\), its engine \d+/);
    flow.stop();
  });
});

test("memory stays flat while everything is replaced", () => {
  const shape = { ...flowShape, feeds: 3, blocksPerFeed: 2_048 };
  const notes: string[] = [];
  const ports = { cpuMs: steppingCpu(), note: (line: string) => void notes.push(line) };
  const figures = measureTurnover(shape, 200_000, ports);
  expect(figures.changes).toBeGreaterThanOrEqual(200_000);
  expect(figures.growth_after_turnover).toBeLessThan(2);
  expect(figures.growth_worst).toBeGreaterThanOrEqual(figures.growth_after_turnover!);
  expect(figures.bytes_per_live_block).toBeGreaterThan(1);
  expect(figures.bytes_per_live_block_worst).toBeGreaterThanOrEqual(figures.bytes_per_live_block!);
  expect(figures.bytes_per_live_block_with_index).toBeGreaterThan(figures.bytes_per_live_block!);
  expect(figures.turnover_yjs_bytes_per_op).toBeLessThan(11);
  expect(notes.length).toBeGreaterThan(3);
  expect(notes.at(-1)).toMatch(/^0\.2 M changes: [\d.]+ B of journals per live block$/);
});

test("bytes of a link are the same each time, and few", async () => {
  const [one, again] = [await measureWire(tiny.wire), await measureWire(tiny.wire)];
  expect(one).toEqual(again);
  expect(one.wire_bytes_per_op).toBeGreaterThan(6);
  expect(one.wire_bytes_per_op).toBeLessThan(20);
  expect(one.idle_wire_bytes_per_s).toBeGreaterThan(0);
  expect(one.idle_wire_bytes_per_s).toBeLessThan(2_048);
});

describe("restarts", () => {
  test("leave journals of the living only, after a while", () => {
    const figures = measureRestarts(tiny.restarts);
    expect(figures.documents_after_1000_restarts).toBeGreaterThan(4);
    expect(figures.documents_at_most).toBe(figures.documents_after_1000_restarts);
    expect(figures.documents_after_quiet).toBe(1 + tiny.restarts.routers);
    expect(figures.journal_bytes_after_quiet).toBeLessThan(figures.journal_bytes_after_restarts!);
  });

  test("leave no more journals of the dead than are kept at most, however many there were", () => {
    const figures = measureRestarts({ ...tiny.restarts, epochs: 90, routers: 2, feeds: 1 });
    expect(figures.documents_after_1000_restarts).toBe(1 + 2 + 64);
    expect(figures.documents_at_most).toBe(1 + 2 + 64);
    expect(figures.documents_after_quiet).toBe(1 + 2);
  });
});

test("a run measures every figure", async () => {
  const notes: string[] = [];
  const figures = await runReplicationOnce(tiny, {
    cpuMs: steppingCpu(),
    note: (line) => void notes.push(line),
  });
  expect(Object.keys(figures).sort()).toEqual([
    "bytes_per_live_block",
    "bytes_per_live_block_start",
    "bytes_per_live_block_with_index",
    "bytes_per_live_block_worst",
    "changes",
    "cpu_share_100k",
    "cpu_share_500k",
    "documents_after_1000_restarts",
    "documents_after_quiet",
    "documents_at_most",
    "growth_after_turnover",
    "growth_worst",
    "idle_wire_bytes_per_s",
    "journal_bytes_after_quiet",
    "journal_bytes_after_restarts",
    "local_ops_per_s",
    "remote_ops_per_s",
    "turnover_yjs_bytes_per_op",
    "wire_bytes_per_op",
    "yjs_bytes_per_op",
  ]);
  // Two readings' worth in each tick of 25 ms.
  expect(figures.cpu_share_100k).toBeCloseTo(2 / 25);
  expect(figures.cpu_share_500k).toBeCloseTo(2 / 25);
  expect(figures.remote_ops_per_s).toBeGreaterThan(figures.local_ops_per_s!);
  expect(notes).toContain("rates measured");
  expect(notes).toContain("bytes on a link measured");
});

test("the long run measures memory only, over as many changes as it is told", async () => {
  const lines: string[] = [];
  const { report, table } = await replicationSuite.run(["--quick", "--ops", "30000"], (line) => lines.push(line));
  expect(report.metrics.changes).toBeGreaterThanOrEqual(30_000);
  expect(report.metrics).not.toHaveProperty("wire_bytes_per_op");
  expect(report.params).toMatchObject({ runs: 1 });
  expect(lines.at(-1)).toBe("run 1 of 1: done");
  expect(table).toContain("growth_after_turnover");
});

test.each([
  ["--runs", "0"],
  ["--runs", "101"],
  ["--blocks", "127"],
  ["--blocks", "32769"],
  ["--blocks", "many"],
  ["--ops", "0"],
  ["--ops", "1.5"],
  ["--ops", "10000000001"],
])("%s %s is refused", async (...args) => {
  await expect(replicationSuite.run(args, () => {})).rejects.toThrow(UsageError);
});
