import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLoadClient, runClosedLoop } from "@espalier/simulator";
import type { WaitPorts } from "../support/until.ts";
import { type AdmissionSettings, admissionConfig } from "./admission-settings.ts";
import { createFailoverClient, type FailoverClient, type Outcome } from "./failover-client.ts";
import { startFailureFleet } from "./failure-fleet.ts";
import type { FigureRow, PartResult, Target } from "./figure-row.ts";
import { createRequests, type RequestMix, runOpenLoad } from "./open-load.ts";
import { describeWrong, firstTokenTimes, goodputOf, rankOf, refusalsOf, type Span } from "./tally.ts";

export interface OverloadOptions {
  readonly engines: number;
  /** An answer counts only if its first token arrives within this time. */
  readonly ttftMs: number;
  readonly admission?: AdmissionSettings;
  /** Duration of the overload. Each step of the search for the peak takes half as long. */
  readonly durationMs: number;
  readonly ports: WaitPorts;
  readonly note: (line: string) => void;
}

/** One offered rate and its result. */
export interface OfferedStep {
  readonly offeredPerSecond: number;
  readonly goodputPerSecond: number;
}

const routers = 2;
/**
 * Real speed, so that the routers' readings of engine metrics are as old, relative to the engines, as in production.
 */
const speed = 1;
const preset = "a10g-7b";
const mix: RequestMix = {
  families: 0,
  sharedWords: 0,
  ownWords: 384,
  streamShare: 1,
  streamTokens: 8,
  plainTokens: 0,
};
/** Concurrent requests per engine that keep it busy without delays. */
const busyPerEngine = 8;
/** The search begins at this share of a closed loop's rate, which is slightly below the fleet's peak. */
const firstStepShare = 0.85;
/** Ratio of one rate of the search to the previous one. */
const stepFactor = 1.15;
/** Smaller gains are noise of one step. */
const noticedFactor = 1.03;
/** The search ends after this many consecutive steps without a gain. */
const idleSteps = 2;
const maxSteps = 8;
/** Time before each measurement at its own rate, until queues are stable and answers end as often as they begin. */
const settleMs = 10_000;

/**
 * Searches for the fleet's peak rate, then offers twice as much.
 *
 * @throws Error when the fleet does not start
 */
export async function runOverload(options: OverloadOptions): Promise<PartResult> {
  const { engines, ttftMs, admission, durationMs, ports, note } = options;
  const folder = mkdtempSync(join(tmpdir(), "espalier-overload-"));
  const config = join(folder, "router.yaml");
  writeFileSync(config, admission ? admissionConfig(admission) : "{}\n");
  const args = ["--config", config, "--health-timeout", "10s"];
  const fleet = await startFailureFleet({ engines, routers, preset, speed, arguments: args, ports }).finally(() =>
    rmSync(folder, { recursive: true, force: true }),
  );
  const loadClient = createLoadClient(ports.clock);
  const client = createFailoverClient(loadClient, fleet.urls);
  try {
    let seed = 1;
    const offer = async (rate: number, ms: number): Promise<Offered> => {
      const fromMs = ports.clock.nowMs() + settleMs;
      const load = { mix, ratePerSecond: rate, durationMs: settleMs + ms, seed: ++seed, client, ports };
      const outcomes = await runOpenLoad(load);
      const span = { fromMs, toMs: fromMs + ms };
      const goodput = goodputOf(outcomes, span, ttftMs);
      note(`${rate.toFixed(1)} requests/s offered: ${goodput.toFixed(1)} within ${ttftMs} ms`);
      return { outcomes, span, step: { offeredPerSecond: rate, goodputPerSecond: goodput } };
    };
    const around = await closedLoopRate(client, engines * busyPerEngine, { durationMs: durationMs / 2, ports });
    note(`${engines * busyPerEngine} clients in a closed loop get ${around.toFixed(1)} requests/s`);
    const steps = await searchPeak(around * firstStepShare, async (rate) => (await offer(rate, durationMs / 2)).step);
    const peak = Math.max(...steps.map(({ goodputPerSecond }) => goodputPerSecond));
    const { outcomes, span } = await offer(2 * (peak || around), durationMs);
    const wrong = outcomes.filter(({ error, status }) => error !== undefined && status !== 429 && status !== 503);
    return {
      rows: overloadRows(outcomes, { span, steps, ttftMs }),
      params: {
        ...{ engines, routers, speed, preset, prompt_words: mix.ownWords, answer_tokens: mix.streamTokens },
        ...{ ttft_bound_ms: ttftMs, measured_ms: durationMs },
        admission: admission
          ? `target ${admission.targetMs}ms, max-pending-tokens ${admission.maxPendingTokens ?? "as by default"}`
          : "defaults",
      },
      wrong: describeWrong(wrong),
    };
  } finally {
    loadClient.close();
    await fleet.stop();
  }
}

interface Offered {
  readonly outcomes: readonly Outcome[];
  readonly span: Span;
  readonly step: OfferedStep;
}

/**
 * Raises the offered rate until the result stops improving.
 *
 * @param firstRate requests per second
 * @returns every step, including the best one
 */
export async function searchPeak(
  firstRate: number,
  offer: (rate: number) => Promise<OfferedStep>,
): Promise<readonly OfferedStep[]> {
  const steps: OfferedStep[] = [];
  let best = 0;
  let idle = 0;
  for (let rate = firstRate; steps.length < maxSteps && idle < idleSteps; rate *= stepFactor) {
    const step = await offer(rate);
    steps.push(step);
    idle = step.goodputPerSecond > best * noticedFactor ? 0 : idle + 1;
    best = Math.max(best, step.goodputPerSecond);
  }
  return steps;
}

/** @returns answers per second, after the first third of the time */
async function closedLoopRate(
  client: FailoverClient,
  concurrency: number,
  { durationMs, ports }: Pick<OverloadOptions, "durationMs" | "ports">,
): Promise<number> {
  const startMs = ports.clock.nowMs();
  const outcomes: Outcome[] = [];
  const requestOf = createRequests(mix, 1);
  let number = 0;
  const job = async (): Promise<void> => {
    outcomes.push(await client.send({ path: "/v1/chat/completions", body: requestOf(number++).body }, true));
  };
  const isOver = (): boolean => ports.clock.nowMs() >= startMs + durationMs;
  await runClosedLoop(() => (isOver() ? undefined : job), concurrency);
  const span = { fromMs: startMs + durationMs / 3, toMs: startMs + durationMs };
  return goodputOf(outcomes, span, Number.POSITIVE_INFINITY);
}

export interface OverloadMeasured {
  /** When twice the peak was offered. */
  readonly span: Span;
  /** Steps of the search. */
  readonly steps: readonly OfferedStep[];
  readonly ttftMs: number;
}

const leastGoodputShare = 0.9;
/** Share of the peak; reveals a peak that was measured too low. */
const leastOffered = 1.8;

export function overloadRows(
  outcomes: readonly Outcome[],
  { span, steps, ttftMs }: OverloadMeasured,
): readonly FigureRow[] {
  const peak = steps.reduce((best, step) => (step.goodputPerSecond > best.goodputPerSecond ? step : best), steps[0]!);
  const goodput = goodputOf(outcomes, span, ttftMs);
  const refusals = refusalsOf(outcomes, span);
  const offered = (refusals.offered * 1_000) / (span.toMs - span.fromMs);
  const sent = outcomes.filter(({ startMs }) => startMs >= span.fromMs && startMs < span.toMs);
  const admitted = firstTokenTimes(sent.filter(({ error }) => error === undefined));
  const row = (figure: string, value: number, target?: Target): FigureRow => {
    return { part: "overload", figure, value, ...(target === undefined ? {} : { target }) };
  };
  return [
    row("peak_offered_per_s", peak.offeredPerSecond),
    row("peak_goodput_per_s", peak.goodputPerSecond),
    row("offered_per_s", offered),
    row("offered_share_of_most_goodput", offered / Math.max(peak.goodputPerSecond, goodput), { least: leastOffered }),
    row("goodput_per_s", goodput),
    row("goodput_share_of_peak", goodput / peak.goodputPerSecond, { least: leastGoodputShare }),
    row("share_429", refusals.status429 / refusals.offered),
    row("share_503", refusals.status503 / refusals.offered),
    row("refused_without_retry_after", refusals.withoutRetryAfter, { most: 0 }),
    row("failed_otherwise", refusals.otherwise, { most: 0 }),
    row("admitted_ttft_p50_ms", rankOf(admitted, 50)),
    row("admitted_ttft_p99_ms", rankOf(admitted, 99), { most: ttftMs }),
  ];
}
