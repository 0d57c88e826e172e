import { pauseFor } from "../support/until.ts";
import type { Outcome } from "./failover-client.ts";
import type { FigureRow, PartResult } from "./figure-row.ts";
import { type SteadyLoadOptions, steadyParams, underSteadyLoad, warmUpMs } from "./steady-load.ts";
import { cachedShare, describeWrong, type Span, tally } from "./tally.ts";

/** What happened while requests were sent. */
export interface RestartTimes {
  /** Equal time before the first restart and after the last one. */
  readonly quietMs: number;
  /** Each from the signal until the restarted router was ready and linked. */
  readonly restarts: readonly Span[];
  /** Engine feeds with which a router had not caught up at the end, summed over all routers. */
  readonly feedsNotLive: number;
}

const quietMs = 10_000;

/**
 * Restarts every router in turn under load, each with its drain.
 *
 * @throws Error when a router does not end or restart as it should
 */
export async function runRestart(options: SteadyLoadOptions): Promise<PartResult> {
  const { ports, note } = options;
  const restarts: Span[] = [];
  let feedsNotLive = Number.NaN;
  const outcomes = await underSteadyLoad(options, async (fleet) => {
    await pauseFor(warmUpMs + quietMs, ports.scheduler);
    for (let index = 0; index < fleet.urls.length; index++) {
      const fromMs = ports.clock.nowMs();
      await fleet.restartRouter(index);
      restarts.push({ fromMs, toMs: ports.clock.nowMs() });
      note(`router ${index + 1} is back after ${Math.round(ports.clock.nowMs() - fromMs)} ms`);
    }
    await pauseFor(quietMs, ports.scheduler);
    feedsNotLive = await fleet.feedsNotLive();
  });
  const { failed, cut } = tally(outcomes);
  return {
    rows: restartRows(outcomes, { quietMs, restarts, feedsNotLive }),
    params: { ...steadyParams, rate: options.rate, engines: options.engines },
    wrong: describeWrong([...failed, ...cut]),
  };
}

/** @param times.restarts at least one */
export function restartRows(outcomes: readonly Outcome[], times: RestartTimes): readonly FigureRow[] {
  const { requests, completed, failed, cut, refused } = tally(outcomes);
  const fromMs = times.restarts[0]!.fromMs;
  const toMs = times.restarts.at(-1)!.toMs;
  const row = (figure: string, value: number, most?: number): FigureRow => {
    return { part: "restart", figure, value, ...(most === undefined ? {} : { target: { most } }) };
  };
  const tookMs = times.restarts.map((span) => span.toMs - span.fromMs);
  return [
    row("requests", requests),
    row("streams", outcomes.filter(({ isStream }) => isStream).length),
    row("completed", completed),
    row("failed", failed.length, 0),
    row("streams_cut", cut.length, 0),
    row("connections_retried", refused),
    row("connections_reset", failed.filter(({ status }) => status === 0).length),
    ...tookMs.map((value, index) => row(`router_${index + 1}_restart_ms`, value)),
    row("cached_share_before", cachedShare(outcomes, { fromMs: fromMs - times.quietMs, toMs: fromMs })),
    row("cached_share_during", cachedShare(outcomes, { fromMs, toMs })),
    row("feeds_not_live_at_end", times.feedsNotLive),
    row("cached_share_after", cachedShare(outcomes, { fromMs: toMs, toMs: toMs + times.quietMs })),
  ];
}
