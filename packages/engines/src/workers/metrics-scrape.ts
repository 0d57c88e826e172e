import type { Cancel } from "@espalier/core";
import { controlFetch, createRepeatLoop, type Fetched, isOwnOutcome } from "./control-fetch.ts";
import type { Engine, EngineDeps } from "./engine.ts";
import { rankNumber } from "./engine-record.ts";
import { type SignalValues, unknownSignals } from "./engine-signals.ts";
import type { ScrapeOutcome } from "./fleet-meters.ts";
import { type MetricsReading, readMetricsPage } from "./metrics-page.ts";

/** Where trtllm-serve has its page. Its `/metrics` is JSON, for which it waits two seconds while the engine is idle. */
const fallbackPath = "/prometheus/metrics";

/** Jitter of the interval between scrapes, as a share of it in either direction. */
const jitter = 0.1;

/** Of a large fleet, whose pages are read slowly, signals are unknown from this many pages on that should have come. */
const missedPages = 3;

/** The state when a scrape began. */
interface Moment {
  /** On the monotonic clock. */
  readonly startedMs: number;
  /** Requests in flight, by rank. */
  readonly inFlight: readonly number[];
}

/**
 * Reads the engine's metrics into the signals of its targets.
 *
 * @param hooks `onRestart` is called when the page is another process's than the last one was, or nothing shows that it
 *   is not after nothing had listened at the engine's address
 */
export function createMetricsScrape(
  deps: EngineDeps,
  engine: Engine,
  hooks: { onRestart(): void },
): { start(): void; stop(): void } {
  const { clock, scheduler, random, sharing, metricsEveryMs } = deps;
  const { scrape: options } = deps.options;
  const paths = [options.path, fallbackPath];
  let pathIndex = 0;
  /** Whether a page was read there. */
  let isFound = false;
  /** Paths in a row without a page. */
  let absentPaths = 0;
  let failures = 0;
  const compare = createProcessWatch();
  let hasStarted = false;
  /** Whether its pages have a moment of their own: many engines that come up together must not be read together for ever. */
  let isSpread = false;
  /** Whether nothing has listened at its address since the last page: another process may have taken its place. */
  let wasGone = false;
  let cancelExpiry: Cancel = () => {};

  const forget = (): void => {
    cancelExpiry();
    for (const target of engine.targets) target.signals.forget();
    engine.lookWhoSleeps();
  };
  /** Unlike momentary numbers, loaded adapters stay loaded until the engine stops. */
  const forgetAll = (): void => {
    forget();
    for (const { adapters } of engine.targets) adapters.forget();
  };
  const accept = (reading: MetricsReading, moment: Moment): void => {
    failures = 0;
    cancelExpiry();
    const forgetAfterMs = Math.max(options.forgetAfterMs, missedPages * deps.pace().scrapeMs);
    cancelExpiry = scheduler.after(moment.startedMs + forgetAfterMs - clock.nowMs(), forget);
    const process = compare(reading);
    const restarted = process === "other" || (process === "unknown" && wasGone);
    wasGone = false;
    for (const [rank, { signals, adapters }] of engine.targets.entries()) {
      const { values, adapters: named } = reading.ranks[rank]!;
      if (restarted) adapters.forget();
      if (signalNames.some((name) => !Object.is(values[name], signals[name]))) engine.lastChangeMs = clock.nowMs();
      adapters.accept(named, moment.startedMs, reading.dialect === "vllm");
      signals.accept(reading.dialect, values, moment.startedMs, moment.inFlight[rank]!);
    }
    if (restarted) hooks.onRestart();
    engine.isUnread = false;
    engine.lookWhoSleeps();
  };
  const acceptPage = (fetched: Fetched, moment: Moment): ScrapeOutcome => {
    if (fetched.outcome === "status" && fetched.status === 404) return "absent";
    if (fetched.outcome !== "ok") return fetched.outcome;
    const read = (): MetricsReading => readMetricsPage(fetched.body, engine.targets.map(rankNumber));
    let reading = read();
    if (engine.ranksShown(reading.rankNumbers)) reading = read();
    if (reading.malformedLines > 0) engine.meters.malformedLines(reading.malformedLines);
    if (!reading.dialect) return "absent";
    accept(reading, moment);
    return "ok";
  };
  /** Goes on to the next path where this one has no page, or none in time. @returns whether no path has one */
  const lookElsewhere = (outcome: ScrapeOutcome): boolean => {
    if (outcome === "ok") isFound = true;
    absentPaths = outcome === "absent" ? absentPaths + 1 : 0;
    if (outcome === "absent" || (outcome === "timeout" && !isFound)) {
      isFound = false;
      pathIndex = (pathIndex + 1) % paths.length;
    }
    if (absentPaths < paths.length) return false;
    absentPaths = 0;
    return true;
  };
  const nextDelayMs = (isAbsent: boolean, startedMs: number): number => {
    const jittered = (delayMs: number): number => delayMs * (1 - jitter + 2 * jitter * random.float());
    if (isAbsent) return jittered(options.absentIntervalMs);
    const intervalMs = metricsEveryMs?.((engine.models ?? []).map(({ id }) => id)) ?? options.intervalMs;
    const { scrapeMs } = deps.pace();
    if (scrapeMs > intervalMs && !isSpread) {
      isSpread = true;
      return Math.max(1, random.float() * scrapeMs);
    }
    return Math.max(1, jittered(Math.max(intervalMs, scrapeMs)) - (clock.nowMs() - startedMs));
  };
  const loop = createRepeatLoop(scheduler, async (isCurrent) => {
    const startedMs = clock.nowMs();
    const inFlight = engine.targets.map(({ index, load }) => load.inFlight + (sharing?.othersInFlight(index) ?? 0));
    const { timeoutMs, maxBytes } = options;
    const fetched = await controlFetch(deps, { url: engine.url + paths[pathIndex]!, timeoutMs, maxBytes });
    if (!isCurrent()) return 0;
    wasGone ||= fetched.outcome === "unreachable";
    const outcome = acceptPage(fetched, { startedMs, inFlight });
    const isAbsent = lookElsewhere(outcome);
    if (isAbsent && wasGone) {
      wasGone = false;
      hooks.onRestart();
    }
    engine.meters.scrape(outcome);
    if (outcome !== "ok" && !isOwnOutcome(fetched.outcome)) {
      failures += 1;
      if (failures >= options.forgetAfterFailures) forget();
    }
    return nextDelayMs(isAbsent, startedMs);
  });
  return {
    start() {
      hasStarted = true;
      isSpread = false;
      engine.isUnread = true;
      pathIndex = 0;
      isFound = false;
      absentPaths = 0;
      loop.start(0);
    },
    stop() {
      wasGone ||= hasStarted && engine.health.lastOutcome === "unreachable";
      loop.stop();
      forgetAll();
    },
  };
}

const signalNames = Object.keys(unknownSignals()) as readonly (keyof SignalValues)[];

/** What a process only counts up. */
const totals = ["promptTokensTotal", "generationTokensTotal"] as const;

/** The start of one process may read so differently: some clients compute it anew, from a clock that is adjusted. */
const sameStartS = 1;

/**
 * Compares each page with the last one, however long ago that was: a process is replaced while nobody can read it, when
 * the signals are long forgotten.
 *
 * @returns takes the reading. `unknown`: it names no start, and had counted nothing before
 */
function createProcessWatch(): (reading: MetricsReading) => "same" | "other" | "unknown" {
  let startS = Number.NaN;
  let last: readonly (readonly number[])[] = [];
  return ({ ranks, processStartS }) => {
    // SGLang's page has no total before the first request: a total that is gone begins at 0 again.
    const now = ranks.map(({ values }) => totals.map((name) => values[name] || 0));
    const isLower = now.some((rank, at) => rank.some((total, which) => total < (last[at]?.[which] ?? 0)));
    const awayS = Math.abs(processStartS - startS);
    const isKnown = !Number.isNaN(awayS) || last.some((rank) => rank.some((total) => total > 0));
    if (!Number.isNaN(processStartS)) startS = processStartS;
    last = now;
    if (isLower || awayS > sameStartS) return "other";
    return isKnown ? "same" : "unknown";
  };
}
