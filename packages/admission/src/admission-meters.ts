import type { CounterSeries, GaugeSeries, HistogramSeries, Meter } from "@espalier/common";

/** Why a request did not go, or not as what it came. */
export type ShedReason = "queue_full" | "preempted" | "deadline_missed" | "demoted" | "client_gone";

export interface ClassMeters {
  queued(change: 1 | -1): void;
  /** For memory. */
  held(change: 1 | -1): void;
  waitedForMemory(milliseconds: number): void;
  waited(milliseconds: number): void;
  shed(reason: ShedReason): void;
  tokens(kind: "prompt" | "output", count: number): void;
}

/** Metrics by class, over all pools. */
export interface AdmissionMeters {
  of(className: string): ClassMeters;
}

const waitBuckets = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];

/** Registers the metrics of admission. Class names come from the configuration, so there are few. */
export function createAdmissionMeters(meter: Meter): AdmissionMeters {
  const queued = meter.gauge({
    name: "espalier_admission_queued_requests",
    help: "Requests that wait in the router until an engine has room, by class.",
    labels: ["class"],
  });
  const wait = meter.histogram({
    name: "espalier_admission_wait_seconds",
    help: "Time that requests waited in the router until an engine had room, of those that had to.",
    labels: ["class"],
    buckets: waitBuckets,
  });
  const held = meter.gauge({
    name: "espalier_admission_held_requests",
    help: "Requests that wait in the router because engines would drop for them what others are expected to come back for, by class.",
    labels: ["class"],
  });
  const memoryWait = meter.histogram({
    name: "espalier_admission_memory_wait_seconds",
    help: "Time that requests were held for memory, of those that were.",
    labels: ["class"],
    buckets: waitBuckets,
  });
  const shed = meter.counter({
    name: "espalier_admission_shed_total",
    help: "Requests that left the queue otherwise than to an engine, or for a lower class (demoted).",
    labels: ["class", "reason"],
  });
  const tokens = meter.counter({
    name: "espalier_admission_tokens_total",
    help: "Tokens that engines had to compute for a class: of prompts as far as no cache had them, and of answers.",
    labels: ["class", "kind"],
  });
  const classes = new Map<string, ClassMeters>();
  return {
    of(className) {
      const known = classes.get(className);
      if (known) return known;
      const created = createClassMeters({
        queued: queued.series(className),
        wait: wait.series(className),
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
  readonly held: GaugeSeries;
  readonly memoryWait: HistogramSeries;
  readonly shed: (reason: ShedReason) => CounterSeries;
  readonly prompt: CounterSeries;
  readonly output: CounterSeries;
}

function createClassMeters({ queued, held, wait, memoryWait, shed, prompt, output }: ClassSeries): ClassMeters {
  return {
    queued: counting(queued),
    held: counting(held),
    waitedForMemory: (milliseconds) => memoryWait.observe(milliseconds / 1_000),
    waited: (milliseconds) => wait.observe(milliseconds / 1_000),
    shed: (reason) => shed(reason).add(),
    tokens: (kind, tokens) => (kind === "prompt" ? prompt : output).add(tokens),
  };
}

/** All pools change one gauge. */
function counting(gauge: GaugeSeries): (change: 1 | -1) => void {
  let count = 0;
  gauge.set(0);
  return (change) => {
    count += change;
    gauge.set(count);
  };
}
