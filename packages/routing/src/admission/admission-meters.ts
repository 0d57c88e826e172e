import type { CounterSeries, GaugeSeries, HistogramSeries, Meter } from "@espalier/core";

/** Why a request left the queue without being dispatched, or moved to a lower class. */
export type ShedReason =
  | "queue_full"
  | "preempted"
  | "deadline_missed"
  | "no_engine"
  | "overflow"
  | "demoted"
  | "client_gone";

const waitBuckets = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];

/** Metrics by class, over all pools. */
export type AdmissionMeters = ReturnType<typeof createAdmissionMeters>;

/** Registers the metrics of admission. Class names come from the configuration, so there are few. */
export function createAdmissionMeters(meter: Meter) {
  const queued = meter.gauge(
    "espalier_admission_queued_requests",
    "Requests queued in the router because every engine is saturated, by class.",
    ["class"],
  );
  const wait = meter.histogram(
    "espalier_admission_wait_seconds",
    "Queueing time in the router of queued requests, in seconds.",
    waitBuckets,
    ["class"],
  );
  const parked = meter.gauge(
    "espalier_admission_parked_requests",
    "Requests parked for cache memory in the router, by class.",
    ["class"],
  );
  const memoryWait = meter.histogram(
    "espalier_admission_memory_wait_seconds",
    "Parking time of parked requests, in seconds.",
    waitBuckets,
    ["class"],
  );
  const held = meter.gauge(
    "espalier_admission_cold_start_requests",
    "Requests queued in the router for a first engine to come up, by class.",
    ["class"],
  );
  const shed = meter.counter(
    "espalier_admission_shed_total",
    "Requests removed from the queue without dispatch, or demoted by a class, by reason.",
    ["class", "reason"],
  );
  const tokens = meter.counter(
    "espalier_admission_tokens_total",
    "Tokens computed by engines for a class: uncached prompt tokens and output tokens.",
    ["class", "kind"],
  );
  const classes = new Map<string, ClassMeters>();
  return {
    of(className: string): ClassMeters {
      const known = classes.get(className);
      if (known) return known;
      const created = createClassMeters({
        queued: queued.series(className),
        wait: wait.series(className),
        parked: parked.series(className),
        held: held.series(className),
        memoryWait: memoryWait.series(className),
        shed: (reason) => shed.series(className, reason),
        prompt: tokens.series(className, "prompt"),
        output: tokens.series(className, "output"),
      });
      classes.set(className, created);
      return created;
    },
  };
}

interface ClassSeries {
  readonly queued: GaugeSeries;
  readonly wait: HistogramSeries;
  readonly parked: GaugeSeries;
  readonly held: GaugeSeries;
  readonly memoryWait: HistogramSeries;
  readonly shed: (reason: ShedReason) => CounterSeries;
  readonly prompt: CounterSeries;
  readonly output: CounterSeries;
}

export type ClassMeters = ReturnType<typeof createClassMeters>;

function createClassMeters({ queued, parked, held, wait, memoryWait, shed, prompt, output }: ClassSeries) {
  return {
    queued: counting(queued),
    /** Parked for memory. */
    parked: counting(parked),
    /** Queued while no engine was up. */
    held: counting(held),
    parkedFor: (milliseconds: number): void => memoryWait.observe(milliseconds / 1_000),
    waited: (milliseconds: number): void => wait.observe(milliseconds / 1_000),
    shed: (reason: ShedReason): void => shed(reason).add(),
    tokens: (kind: "prompt" | "output", tokens: number): void => (kind === "prompt" ? prompt : output).add(tokens),
  };
}

/** One gauge shared by all pools. */
function counting(gauge: GaugeSeries): (change: 1 | -1) => void {
  let count = 0;
  gauge.set(0);
  return (change) => {
    count += change;
    gauge.set(count);
  };
}
