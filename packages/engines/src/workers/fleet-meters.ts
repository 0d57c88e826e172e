import type { EngineId, GaugeSeries, Meter, Metric } from "@espalier/core";
import type { BreakerState } from "./breaker.ts";
import type { FetchOutcome } from "./control-fetch.ts";
import type { EnginePace } from "./engine-pace.ts";
import type { EngineWait } from "./engine-wait.ts";

/** `absent`: the path has no page with a known metric. */
export type ScrapeOutcome = FetchOutcome | "absent";

/** The metrics of one engine. Report nothing after `remove`, or the series would come back. */
export interface EngineMeters {
  up(isUp: boolean): void;
  inFlight(count: number): void;
  breaker(state: BreakerState): void;
  overruled(isOverruled: boolean): void;
  tried(isTried: boolean): void;
  asleep(ranks: number): void;
  /** @param ms of a round trip to it */
  network(ms: number): void;
  restarted(): void;
  wait(wait: EngineWait): void;
  pace(pace: EnginePace): void;
  probe(outcome: FetchOutcome): void;
  scrape(outcome: ScrapeOutcome): void;
  malformedLines(count: number): void;
  remove(): void;
}

const breakerValues: Readonly<Record<BreakerState, number>> = { closed: 0, "half-open": 1, open: 2 };

/** Registers the metrics of the fleet. */
export function createFleetMeters(meter: Meter): (engine: EngineId) => EngineMeters {
  const labels = ["engine"];
  const withOutcome = ["engine", "outcome"];
  const metrics = {
    up: meter.gauge("espalier_engine_up", "1 while the engine is up by its health checks.", labels),
    inFlight: meter.gauge(
      "espalier_engine_requests_in_flight",
      "Requests from this router in flight at the engine.",
      labels,
    ),
    breaker: meter.gauge(
      "espalier_engine_breaker_state",
      "State of the engine's circuit breaker: 0 closed, 1 half-open, 2 open.",
      labels,
    ),
    overruled: meter.gauge(
      "espalier_engine_breaker_overruled",
      "1 while the engine's circuit breaker is ignored because too many of a model are open.",
      labels,
    ),
    tried: meter.gauge(
      "espalier_engine_health_overruled",
      "1 while the engine gets requests in panic mode although it is down.",
      labels,
    ),
    asleep: meter.gauge("espalier_engine_asleep_ranks", "Ranks of the engine that are asleep, by its metrics.", labels),
    network: meter.gauge(
      "espalier_engine_network_round_trip_seconds",
      "Shortest round trip between this router and the engine in the last minute, in seconds.",
      labels,
    ),
    restarts: meter.counter(
      "espalier_engine_restarts_total",
      "Restarts of the engine's process, by its metrics.",
      labels,
    ),
    oldestWait: meter.gauge(
      "espalier_engine_oldest_wait_seconds",
      "Age of the oldest request from this router in flight at the engine without a first token, in seconds; 0 without one.",
      labels,
    ),
    unresponsive: meter.gauge(
      "espalier_engine_unresponsive_seconds",
      "Time since the last sign of work of an engine that should have answered, in seconds; 0 for one that works.",
      labels,
    ),
    ttft: meter.gauge(
      "espalier_engine_time_to_first_token_seconds",
      "Median time from dispatch to first token of this router's streams at the engine in the last minute, in seconds; absent without one.",
      labels,
    ),
    tpot: meter.gauge(
      "espalier_engine_time_per_output_token_seconds",
      "Median time per output token after the first of this router's streams at the engine in the last minute, in seconds; absent without one.",
      labels,
    ),
    probes: meter.counter(
      "espalier_engine_health_probes_total",
      "Health checks of the engine by outcome.",
      withOutcome,
    ),
    scrapes: meter.counter(
      "espalier_engine_metrics_scrapes_total",
      "Scrapes of the engine's metrics by outcome.",
      withOutcome,
    ),
    malformed: meter.counter(
      "espalier_engine_metrics_malformed_lines_total",
      "Malformed lines with a known name in the engine's metrics.",
      labels,
    ),
  };

  return (engine) => {
    const { up, inFlight, breaker, overruled, tried, asleep } = metrics;
    const of = <Series>(metric: Metric<Series>): Series => metric.series(engine);
    const [isUpSeries, inFlightSeries, breakerSeries] = [of(up), of(inFlight), of(breaker)];
    const [overruledSeries, triedSeries, asleepSeries] = [of(overruled), of(tried), of(asleep)];
    return {
      up: (isUp) => isUpSeries.set(isUp ? 1 : 0),
      inFlight: (count) => inFlightSeries.set(count),
      breaker: (state) => breakerSeries.set(breakerValues[state]),
      overruled: (isOverruled) => overruledSeries.set(isOverruled ? 1 : 0),
      tried: (isTried) => triedSeries.set(isTried ? 1 : 0),
      asleep: (ranks) => asleepSeries.set(ranks),
      network: (ms) => of(metrics.network).set(ms / 1_000),
      restarted: () => of(metrics.restarts).add(),
      wait({ oldestMs, unresponsiveMs }) {
        of(metrics.oldestWait).set((oldestMs || 0) / 1_000);
        of(metrics.unresponsive).set((unresponsiveMs || 0) / 1_000);
      },
      pace({ ttftMs, tpotMs }) {
        setOrForget(metrics.ttft, engine, ttftMs);
        setOrForget(metrics.tpot, engine, tpotMs);
      },
      probe: (outcome) => metrics.probes.series(engine, outcome).add(),
      scrape: (outcome) => metrics.scrapes.series(engine, outcome).add(),
      malformedLines: (count) => of(metrics.malformed).add(count),
      remove() {
        for (const metric of Object.values(metrics)) metric.forget("engine", engine);
      },
    };
  };
}

function setOrForget(metric: Metric<GaugeSeries>, engine: EngineId, ms: number): void {
  if (Number.isNaN(ms)) metric.forget("engine", engine);
  else metric.series(engine).set(ms / 1_000);
}
