import { pauseFor } from "../support/until.ts";
import { failedEngineHeader, type Outcome } from "./failover-client.ts";
import type { FigureRow, PartResult, Target } from "./figure-row.ts";
import { type SteadyLoadOptions, steadyParams, underSteadyLoad, warmUpMs } from "./steady-load.ts";
import { describeWrong, firstTokenTimes, rankOf, tally, wasRetried } from "./tally.ts";

export interface Kill {
  readonly engine: string;
  readonly atMs: number;
}

const beforeMs = 5_000;
/** Longer than health checks take to notice the engine's death, and breakers to probe it. */
const afterMs = 25_000;

/**
 * Kills an engine under load, and observes the requests in flight and those that follow.
 *
 * @throws Error when the fleet does not start
 */
export async function runKill(options: SteadyLoadOptions): Promise<PartResult> {
  const { ports, note } = options;
  let kill: Kill = { engine: "", atMs: Number.NaN };
  const outcomes = await underSteadyLoad(options, async (fleet) => {
    await pauseFor(warmUpMs + beforeMs, ports.scheduler);
    kill = { engine: fleet.engineIds[0]!, atMs: ports.clock.nowMs() };
    await fleet.killEngine(0);
    note(`${kill.engine} is killed`);
    await pauseFor(afterMs, ports.scheduler);
  });
  const { failed, cut } = tally(outcomes);
  const isWrong = (each: Outcome): boolean => !isCutShort(each, kill);
  return {
    rows: killRows(outcomes, kill),
    params: { ...steadyParams, rate: options.rate, engines: options.engines },
    wrong: describeWrong([...failed.filter(isWrong), ...cut.filter((each) => isUnexpected(each, kill))]),
  };
}

/** The dead engine had sent the headers of its answer, after which routers ask no other engine; the client had nothing of it. */
function isCutShort({ headers, errorCode }: Outcome, kill: Kill): boolean {
  return headers?.[failedEngineHeader] === kill.engine && errorCode === "upstream_cut_short";
}

/** A stream that broke off although it was not at the dead engine, or whose end is unknown. */
function isUnexpected({ engine, isErrorInBody }: Outcome, kill: Kill): boolean {
  return engine !== kill.engine || isErrorInBody !== true;
}

export function killRows(outcomes: readonly Outcome[], kill: Kill): readonly FigureRow[] {
  const { requests, completed, failed, cut } = tally(outcomes);
  const there = cut.filter(({ engine }) => engine === kill.engine);
  const cutShort = failed.filter((each) => isCutShort(each, kill)).length;
  const retried = outcomes.filter(wasRetried);
  // The reference for requests that met the dead engine: requests around the same time that did not.
  const beside = outcomes.filter((each) => !wasRetried(each) && each.startMs >= kill.atMs - beforeMs);
  const usual = firstTokenTimes(beside);
  const delayed = firstTokenTimes(retried);
  const added = (rank: number): number => rankOf(delayed, rank) - rankOf(usual, rank);
  const lastMs = retried.reduce((latest, { startMs }) => Math.max(latest, startMs - kill.atMs), 0);
  const row = (figure: string, value: number, target?: Target): FigureRow => {
    return { part: "kill", figure, value, ...(target === undefined ? {} : { target }) };
  };
  return [
    row("requests", requests),
    row("completed", completed),
    row("failed_after_engine_headers", cutShort),
    row("failed_without_first_byte", failed.length - cutShort, { most: 0 }),
    row("streams_cut_with_error_frame", there.filter(({ isErrorInBody }) => isErrorInBody).length),
    row("streams_cut_without_error_frame", there.filter(({ isErrorInBody }) => !isErrorInBody).length, { most: 0 }),
    row("streams_cut_elsewhere", cut.length - there.length, { most: 0 }),
    row("requests_retried", retried.length),
    row("last_request_sent_there_ms", lastMs),
    ...(delayed.length === 0 ? [] : [row("failover_added_p50_ms", added(50)), row("failover_added_p99_ms", added(99))]),
  ];
}
