import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import type {
  MeshNodeAnswers,
  MeshNodeCommand,
  MeshNodeOptions,
  MeshNodeStats,
  TargetDigest,
} from "../src/mesh-node/mesh-node-messages.ts";
import type { MeshNodeProcess } from "../src/mesh-node/mesh-node-process.ts";
import { joinReport, joinSuite, joinTable } from "../src/suites/join.ts";
import { type JoinMeasurement, joinFigures, measureJoins } from "../src/suites/join-run.ts";
import { UsageError } from "../src/support/usage-error.ts";

const sizes = { targetsPerPeer: 2, blocksPerTarget: 500, changesPerS: 4_000, joins: 2 };

interface FakeFleet {
  readonly started: MeshNodeOptions[];
  readonly asked: string[];
  readonly stopped: string[];
  /** Milliseconds until a joiner is ready. */
  readyMs: number;
  /** Joiners whose state never becomes equal. */
  readonly wrong: Set<string>;
  startNode(options: MeshNodeOptions): Promise<MeshNodeProcess>;
}

const quietStats: MeshNodeStats = {
  elapsedMs: 0,
  cpuMs: 10,
  ops: 0,
  messages: 0,
  skippedOps: 0,
  stallMs: 3,
  busyStallMs: 2,
  sentBytes: 0,
  receivedBytes: 16_000,
  probesSent: [],
  gaugesSent: [],
  probesSeen: {},
  gaugesSeen: {},
  blocks: 2_000,
  indexBytes: 0,
  journalBytes: 14_000,
  foldBytes: 0,
  residentBytes: 0,
};

/** Nodes that answer what nodes would, without doing any of it. */
function createFakeFleet(nowMs: () => number): FakeFleet {
  const fleet: FakeFleet = {
    started: [],
    asked: [],
    stopped: [],
    readyMs: 100,
    wrong: new Set(),
    async startNode(options) {
      const { routerId } = options;
      const isPeer = routerId.startsWith("peer-");
      const startMs = nowMs();
      let filled = 0;
      fleet.started.push(options);
      const isReady = (): boolean => isPeer || nowMs() - startMs >= fleet.readyMs;
      const digest: TargetDigest = {
        target: "engine-0-0/0",
        epoch: "0.0.0",
        sequence: fleet.wrong.has(routerId) ? 4 : 5,
        blocks: 500,
        digest: [1, 2],
      };
      const answers: { [Command in MeshNodeCommand]: () => MeshNodeAnswers[Command] } = {
        fill() {
          filled = 1_000;
          return { blocks: filled };
        },
        start: () => ({}),
        stop: () => ({}),
        reset: () => ({}),
        leave: () => ({}),
        digest: () => ({ targets: [digest] }),
        stats: () => ({ ...quietStats, stallMs: routerId === "peer-1" ? 9 : 3, cpuMs: isPeer ? 10 : 20 }),
        ready: () => ({
          waitingFor: isReady() ? [] : ["snapshot"],
          readyMs: isReady() ? fleet.readyMs : null,
          readyBlocks: isReady() ? 2_000 : null,
          members: isPeer ? 1 : 2,
          blocks: filled * 2,
        }),
      };
      return {
        routerId,
        address: `${routerId}:1`,
        process: undefined as never,
        async ask(command) {
          fleet.asked.push(`${routerId} ${command}`);
          return answers[command]();
        },
        stop: async () => void fleet.stopped.push(routerId),
      };
    },
  };
  return fleet;
}

/** Runs joins in virtual time, which goes on whenever they wait. */
async function runJoins(change: (fleet: FakeFleet) => void = () => {}) {
  const time = createVirtualTime();
  const fleet = createFakeFleet(() => time.clock.nowMs());
  change(fleet);
  const notes: string[] = [];
  const { clock, scheduler } = time;
  const joins = measureJoins(sizes, { startNode: fleet.startNode, note: (line) => notes.push(line), clock, scheduler });
  let isOver = false;
  const outcome = joins.then(
    (run) => ({ run }),
    (error: Error) => ({ error }),
  );
  void outcome.then(() => {
    isOver = true;
  });
  for (let round = 0; round < 20_000 && !isOver; round++) await time.advanceAsync(20);
  return { fleet, notes, ...(await outcome) };
}

describe("joins", () => {
  test("are measured with idle peers and with peers at work, in turn", async () => {
    const outcome = await runJoins();
    if (!("run" in outcome)) throw outcome.error;
    const { run, fleet, notes } = outcome;
    expect(run.idle).toHaveLength(2);
    expect(run.busy).toHaveLength(2);
    expect(fleet.started.map(({ routerId }) => routerId)).toEqual([
      "peer-0",
      "peer-1",
      "idle-0",
      "busy-0",
      "idle-1",
      "busy-1",
    ]);
    expect(run.idle[0]).toEqual({
      blocks: 2_000,
      readyMs: 100,
      joinerStallMs: 3,
      joinerBusyStallMs: 2,
      peerStallMs: 9,
      peerBusyStallMs: 2,
      joinerCpuMs: 20,
      peerCpuMs: 10,
      receivedBytes: 16_000,
      journalBytes: 14_000,
    });
    expect(notes[0]).toBe("2 peers with 0.00 M blocks");
    expect(notes.at(-1)).toBe("join 2 of 2: ready after 100 ms idle, ready after 100 ms at work");
  });

  test("peers have half of the targets' changes each; who joins has none", async () => {
    const { fleet } = await runJoins();
    const [first, second, joiner] = fleet.started;
    expect(first).toMatchObject({ seeds: [], ratePerS: 2_000, blocksPerTarget: 500 });
    expect(first!.targets).toEqual(["engine-0-0/0", "engine-0-1/0"]);
    expect(second).toMatchObject({ seeds: ["peer-0:1"], targets: ["engine-1-0/0", "engine-1-1/0"] });
    expect(joiner).toMatchObject({ seeds: ["peer-0:1", "peer-1:1"], targets: [], ratePerS: 0 });
  });

  test("peers work only while somebody joins them at work, and count anew for each", async () => {
    const { fleet } = await runJoins();
    const ofPeer = fleet.asked.filter((line) => line.startsWith("peer-0 ")).map((line) => line.slice(7));
    const steps = ofPeer.filter((command) => command !== "ready" && command !== "digest");
    const join = ["reset", "stats", "stop"];
    const both = [...join, "start", ...join, "stop"];
    expect(steps).toEqual(["fill", ...both, ...both]);
  });

  test("every process is ended", async () => {
    const { fleet } = await runJoins();
    expect([...fleet.stopped].sort()).toEqual(["busy-0", "busy-1", "idle-0", "idle-1", "peer-0", "peer-1"]);
    expect(fleet.asked).toContain("idle-0 leave");
  });

  test("do not count when a router ends with something else than its peers", async () => {
    const outcome = await runJoins((fleet) => fleet.wrong.add("busy-0"));
    expect("error" in outcome && outcome.error.message).toBe(
      "after 20000 ms the nodes do not hold the same: peer-0: 1 settled, 0 other; peer-1: 1 settled, 0 other; busy-0: 1 settled, 1 other",
    );
    expect([...outcome.fleet.stopped].sort()).toEqual(["busy-0", "idle-0", "peer-0", "peer-1"]);
  });

  test("do not wait for ever", async () => {
    const outcome = await runJoins((fleet) => {
      fleet.readyMs = 1e9;
    });
    expect("error" in outcome && outcome.error.message).toBe(
      "after 120000 ms still waiting for the joiner to be ready",
    );
    expect([...outcome.fleet.stopped].sort()).toEqual(["idle-0", "peer-0", "peer-1"]);
  });
});

const measurement = (readyMs: number): JoinMeasurement => ({
  blocks: 5_000_000,
  readyMs,
  joinerStallMs: 12,
  joinerBusyStallMs: 8,
  peerStallMs: 10,
  peerBusyStallMs: 7,
  joinerCpuMs: 900,
  peerCpuMs: 400,
  receivedBytes: 60_000_000,
  journalBytes: 40_000_000,
});

test("a measurement's figures have the names that others depend on", () => {
  expect(joinFigures(measurement(800))).toEqual({
    blocks: 5_000_000,
    ready_ms: 800,
    stall_joiner_ms: 12,
    stall_peer_ms: 10,
    busy_stall_joiner_ms: 8,
    busy_stall_peer_ms: 7,
    cpu_joiner_ms: 900,
    cpu_peer_ms: 400,
    received_bytes_per_block: 12,
    journal_bytes_per_block: 8,
  });
});

test("figures are medians over the joins, those at work under names of their own", () => {
  const run = { idle: [700, 900, 800].map(measurement), busy: [1_200, 1_000, 1_100].map(measurement) };
  const report = joinReport(run, sizes);
  expect(report.metrics).toMatchObject({ blocks: 5_000_000, ready_ms: 800, loaded_ready_ms: 1_100 });
  expect(report.spread.espalier?.ready_ms).toEqual({ min: 700, max: 900 });
  expect(report.spread.espalier?.loaded_ready_ms).toEqual({ min: 1_000, max: 1_200 });
  expect(report.params).toEqual({ runs: 3, peers: 2, targets: 4, blocks_per_target: 500, changes_per_s: 4_000 });
  const table = joinTable(report);
  expect(table).toMatch(/ready_ms +800 \(700 \.\. 900\) +1100 \(1000 \.\. 1200\)\n/);
  expect(table).not.toContain("loaded_");
  expect(report.warnings).toHaveLength(1);
});

test.each([
  ["--runs", "0"],
  ["--runs", "101"],
  ["--blocks", "127"],
  ["--blocks", "32769"],
  ["--blocks", "1e3.5"],
])("%s %s is refused before anything is started", async (...args) => {
  await expect(joinSuite.run(args, () => {})).rejects.toThrow(UsageError);
});
