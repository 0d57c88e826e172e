import {
  asEspalierError,
  type Cancel,
  type Clock,
  type HttpClient,
  type HttpRequest,
  type Scheduler,
} from "@espalier/core";

/** How a control request ended; a bounded set, fit for a metric label. */
export type FetchOutcome = (typeof fetchOutcomes)[number];

/**
 * `local`: this router could open no connection at all. `late`: the event loop was late, so that the timeout may be this
 * router's own fault. `busy`: a timeout of an engine that meanwhile answered requests. `paused`: an RL framework paused it.
 */
const fetchOutcomes = [
  "ok",
  "status",
  "timeout",
  "unreachable",
  "protocol",
  "local",
  "late",
  "busy",
  "paused",
] as const;

/** Outcomes that do not count against the engine. */
const ownOutcomes = ["local", "late", "busy", "paused"] as const satisfies readonly FetchOutcome[];

export type OwnOutcome = (typeof ownOutcomes)[number];

export const isOwnOutcome = (outcome: FetchOutcome): outcome is OwnOutcome =>
  (ownOutcomes as readonly FetchOutcome[]).includes(outcome);

/**
 * A timeout counts as `late` if the event loop was late by at least this share of it, in total, and this many milliseconds:
 * the answer may have waited here. An engine that really is unreachable fails later checks, or requests.
 */
const lateShare = 0.25;
const minLateMs = 100;
/** A timeout also counts as `late` if it fired later than due by this share of it. */
const overdueShare = 0.5;
/** How many times within its timeout a request measures the lateness of the event loop. */
const measurements = 8;

export interface Fetched {
  readonly outcome: FetchOutcome;
  /** HTTP status, 0 without an answer. */
  readonly status: number;
  readonly body: string;
}

interface ControlPorts {
  readonly http: HttpClient;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

/** Sends one control request; a failure is a result here, never a throw. */
export async function controlFetch({ http, clock, scheduler }: ControlPorts, request: HttpRequest): Promise<Fetched> {
  const startedMs = clock.nowMs();
  const periodMs = request.timeoutMs / measurements;
  let lateMs = 0;
  let dueMs = startedMs + periodMs;
  const cancel = scheduler.every(periodMs, () => {
    lateMs += Math.max(0, clock.nowMs() - dueMs);
    dueMs = clock.nowMs() + periodMs;
  });
  try {
    const { status, body } = await http(request);
    return { outcome: status >= 200 && status < 300 ? "ok" : "status", status, body };
  } catch (thrown) {
    const outcome = failureOutcome(thrown);
    const { timeoutMs } = request;
    const isOverdue = clock.nowMs() - startedMs >= (1 + overdueShare) * timeoutMs;
    const isLate = isOverdue || lateMs >= Math.max(minLateMs, lateShare * timeoutMs);
    return { outcome: isLate && outcome === "timeout" ? "late" : outcome, status: 0, body: "" };
  } finally {
    cancel();
  }
}

function failureOutcome(thrown: unknown): FetchOutcome {
  switch (asEspalierError(thrown).code) {
    case "upstream_timeout":
      return "timeout";
    case "out_of_descriptors":
      return "local";
    case "upstream_connect_failed":
      return "unreachable";
    default:
      return "protocol";
  }
}

/** A short phrase for logs: `timeout`, or `status 503`. */
export function describeOutcome({ outcome, status }: Fetched): string {
  return outcome === "status" ? `status ${status}` : outcome;
}

/** Delay until the next run of a step that threw. */
const afterDefectMs = 1_000;

/** Runs an asynchronous step repeatedly, one run at a time. */
interface RepeatLoop {
  /** Starts or restarts, with the first run `delayMs` from now; at once if it is 0. */
  start(delayMs: number): void;
  stop(): void;
}

/**
 * @param step does the work and returns the delay until the next run in milliseconds. After each await it checks
 * `isCurrent`, and changes nothing if the loop was stopped or restarted in the meantime. It must not throw: that is a
 * defect, which the process logs, and the loop goes on.
 */
export function createRepeatLoop(
  scheduler: Scheduler,
  step: (isCurrent: () => boolean) => Promise<number>,
): RepeatLoop {
  let generation = 0;
  let cancel: Cancel = () => {};

  const run = async (mine: number): Promise<void> => {
    let delayMs = afterDefectMs;
    try {
      delayMs = await step(() => mine === generation);
    } finally {
      if (mine === generation) cancel = scheduler.after(delayMs, () => void run(mine));
    }
  };
  const stop = (): void => {
    generation += 1;
    cancel();
  };
  return {
    start(delayMs) {
      stop();
      const mine = generation;
      if (delayMs <= 0) void run(mine);
      else cancel = scheduler.after(delayMs, () => void run(mine));
    },
    stop,
  };
}
