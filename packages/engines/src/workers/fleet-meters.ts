import type { EngineId, Meter } from "@espalier/core";
import type { BreakerState } from "./breaker.ts";
import { type FetchOutcome, fetchOutcomes } from "./control-fetch.ts";

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
  const up = meter.gauge({ name: "espalier_engine_up", help: "1 while health checks find the engine up.", labels });
  const inFlight = meter.gauge({
    name: "espalier_engine_requests_in_flight",
    help: "Requests from this router in flight at the engine.",
    labels,
  });
  const breaker = meter.gauge({
    name: "espalier_engine_breaker_state",
    help: "State of the engine's circuit breaker: 0 closed, 1 half-open, 2 open.",
    labels,
  });
  const overruled = meter.gauge({
    name: "espalier_engine_breaker_overruled",
    help: "1 while the engine's circuit breaker is ignored, because those of too many engines of a model are open.",
    labels,
  });
  const tried = meter.gauge({
    name: "espalier_engine_health_overruled",
    help: "1 while the engine gets requests although health checks fail, because too few of a model's engines are up.",
    labels,
  });
  const asleep = meter.gauge({
    name: "espalier_engine_asleep_ranks",
    help: "Ranks of the engine that get no requests because its metrics say that they are asleep.",
    labels,
  });
  const network = meter.gauge({
    name: "espalier_engine_network_round_trip_seconds",
    help: "Round trip between this router and the engine: the shortest of the last minute.",
    labels,
  });
  const probes = meter.counter({
    name: "espalier_engine_health_probes_total",
    help: "Health checks of the engine by outcome.",
    labels: withOutcome,
  });
  const scrapes = meter.counter({
    name: "espalier_engine_metrics_scrapes_total",
    help: "Scrapes of the engine's metrics by outcome.",
    labels: withOutcome,
  });
  const malformed = meter.counter({
    name: "espalier_engine_metrics_malformed_lines_total",
    help: "Malformed lines with a known name in the engine's metrics.",
    labels,
  });

  return (engine) => {
    const upSeries = up.series(engine);
    const inFlightSeries = inFlight.series(engine);
    const breakerSeries = breaker.series(engine);
    const overruledSeries = overruled.series(engine);
    const triedSeries = tried.series(engine);
    const asleepSeries = asleep.series(engine);
    return {
      up: (isUp) => upSeries.set(isUp ? 1 : 0),
      inFlight: (count) => inFlightSeries.set(count),
      breaker: (state) => breakerSeries.set(breakerValues[state]),
      overruled: (isOverruled) => overruledSeries.set(isOverruled ? 1 : 0),
      tried: (isTried) => triedSeries.set(isTried ? 1 : 0),
      asleep: (ranks) => asleepSeries.set(ranks),
      network: (ms) => network.series(engine).set(ms / 1_000),
      probe: (outcome) => probes.series(engine, outcome).add(),
      scrape: (outcome) => scrapes.series(engine, outcome).add(),
      malformedLines: (count) => malformed.series(engine).add(count),
      remove() {
        for (const metric of [up, inFlight, breaker, overruled, tried, asleep, network]) metric.remove(engine);
        malformed.remove(engine);
        for (const outcome of fetchOutcomes) {
          probes.remove(engine, outcome);
          scrapes.remove(engine, outcome);
        }
        scrapes.remove(engine, "absent");
      },
    };
  };
}
