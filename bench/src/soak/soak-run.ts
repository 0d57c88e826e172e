import { createSeededRandom } from "@espalier/core";
import { createLoadClient } from "@espalier/simulator";
import { pauseFor, type WaitPorts } from "../support/until.ts";
import { createDigestCheck } from "./digest-check.ts";
import { type RouterSample, sampleRouter } from "./samples.ts";
import { type SoakFleet, startSoakFleet } from "./soak-fleet.ts";
import { createLoadCounts, type LoadCounts, runSoakLoad } from "./soak-load.ts";

export interface SoakOptions {
  readonly durationMs: number;
  readonly engines: number;
  readonly routers: number;
  readonly clients: number;
  /** Engine seconds per real second. */
  readonly speed: number;
  /** Time between two changes of the fleet. */
  readonly churnMs: number;
  readonly ports: WaitPorts;
  readonly note: (line: string) => void;
}

export interface SoakResult {
  readonly samples: readonly RouterSample[];
  readonly counts: LoadCounts;
  /** How often each change of the fleet was made. */
  readonly churn: Readonly<Record<ChurnName, number>>;
  /** Facts compared between routers. */
  readonly digestsCompared: number;
  readonly digestMismatches: readonly string[];
  /** From the end of the load until all routers had the same facts; undefined if they never did. */
  readonly settledMs: number | undefined;
}

const churnNames = ["replaceEngine", "restartRouter", "killEngine", "killRouter"] as const;

type ChurnName = (typeof churnNames)[number];

const pauseMs = 100;
/** Number of samples per run, at most one a second. */
const samplesPerRun = 480;
const leastSampleMs = 1_000;
const noteEveryMs = 60_000;
/**
 * How long the facts of all routers may take to become equal after the load. Facts that no engine holds are forgotten
 * within 40 s.
 */
const settleMs = 60_000;

/**
 * Runs a fleet under load while engines and routers are replaced, and samples the resource use of its routers
 * throughout.
 *
 * @throws Error when a part of the fleet does not start, end or answer as it should
 */
export async function runSoak(options: SoakOptions): Promise<SoakResult> {
  const { ports, durationMs, note } = options;
  const fleet = await startSoakFleet(options);
  const client = createLoadClient(ports.clock);
  const ended = new AbortController();
  const counts = createLoadCounts();
  const watch = createWatch(fleet, options);
  note("the fleet is whole");
  try {
    const startMs = ports.clock.nowMs();
    const isOver = (): boolean => ended.signal.aborted || ports.clock.nowMs() - startMs >= durationMs;
    const load = runSoakLoad(
      {
        ...{ routers: () => fleet.open, wasEngineKilled: (engine: string) => fleet.wasEngineKilled(engine) },
        ...{ clients: options.clients, pauseMs, client, ...ports, random: createSeededRandom(1), signal: ended.signal },
      },
      counts,
    );
    const sampling = watch.run(startMs, isOver, counts);
    const churn = await changeFleet(fleet, options, isOver).finally(() => ended.abort());
    await Promise.all([load, sampling]);
    return {
      ...{ samples: watch.samples, counts, churn, digestsCompared: watch.digests.compared },
      ...{ digestMismatches: watch.digests.mismatches, settledMs: await untilSettled(fleet, ports) },
    };
  } finally {
    client.close();
    await fleet.stop();
  }
}

/** Makes the changes in rotation until the run ends; finishes a change that has begun. */
async function changeFleet(
  fleet: SoakFleet,
  { churnMs, ports, note }: SoakOptions,
  isOver: () => boolean,
): Promise<SoakResult["churn"]> {
  const churn = { replaceEngine: 0, restartRouter: 0, killEngine: 0, killRouter: 0 };
  let dueMs = ports.clock.nowMs();
  for (let turn = 0; ; turn++) {
    dueMs = Math.max(dueMs + churnMs, ports.clock.nowMs());
    while (!isOver() && ports.clock.nowMs() < dueMs) await pauseFor(100, ports.scheduler);
    if (isOver()) return churn;
    const name = churnNames[turn % churnNames.length]!;
    try {
      await fleet[name]();
    } catch (thrown) {
      note(`${name} failed`);
      throw thrown;
    }
    churn[name] += 1;
  }
}

/** Samples every router periodically. */
function createWatch(fleet: SoakFleet, { durationMs, ports, note }: SoakOptions) {
  const samples: RouterSample[] = [];
  const digests = createDigestCheck();
  const everyMs = Math.max(leastSampleMs, durationMs / samplesPerRun);
  const takeOne = async (startMs: number): Promise<void> => {
    const atMs = ports.clock.nowMs() - startMs;
    // A router that is ending does not answer.
    const taken = await Promise.all(
      fleet.open.map((router) => sampleRouter(router, atMs, ports.scheduler).catch(() => undefined)),
    );
    for (const sample of taken) {
      if (!sample) continue;
      digests.add(sample.router, sample.facts);
      samples.push({ ...sample, facts: [] });
    }
  };
  return {
    samples,
    digests,
    async run(startMs: number, isOver: () => boolean, counts: LoadCounts): Promise<void> {
      let notedMs = startMs;
      while (!isOver()) {
        await takeOne(startMs);
        if (ports.clock.nowMs() - notedMs >= noteEveryMs) {
          notedMs = ports.clock.nowMs();
          note(progressOf(samples, counts, notedMs - startMs));
        }
        await pauseFor(everyMs, ports.scheduler);
      }
    },
  };
}

function progressOf(samples: readonly RouterSample[], counts: LoadCounts, passedMs: number): string {
  const names = [...new Set(samples.map(({ router }) => router))];
  const latest = names.map((name) => samples.findLast(({ router }) => router === name)?.rssMb.toFixed(0)).join(", ");
  return `${Math.round(passedMs / 1_000)} s, ${counts.completed} answers, ${counts.failed} failed, ${latest} MB`;
}

interface FactsPage {
  readonly facts: { readonly targets: number; readonly settled: number; readonly digest: string };
}

/** @returns milliseconds until all routers had the same facts, or undefined */
async function untilSettled(fleet: SoakFleet, { clock, scheduler }: WaitPorts): Promise<number | undefined> {
  const startMs = clock.nowMs();
  while (clock.nowMs() - startMs < settleMs) {
    const pages = await Promise.all(
      fleet.open.map(async ({ adminUrl }) => (await (await fetch(`${adminUrl}/admin/mesh`)).json()) as FactsPage),
    );
    const [first] = pages;
    const isEqual = pages.every(({ facts }) => facts.settled === facts.targets && facts.digest === first?.facts.digest);
    if (isEqual) return clock.nowMs() - startMs;
    await pauseFor(50, scheduler);
  }
  return undefined;
}
