import {
  asEspalierError,
  type Cancel,
  type Clock,
  type HttpClient,
  type HttpRequest,
  type Scheduler,
} from "@espalier/common";

/** How a control request ended; a bounded set, fit for a metric label. */
export type FetchOutcome = (typeof fetchOutcomes)[number];

/** `local`: this router could open no connection, to whomever. `late`: it had no time, so that a timeout tells of nobody else. */
export const fetchOutcomes = ["ok", "status", "timeout", "unreachable", "protocol", "local", "late"] as const;

/** Outcomes that tell nothing of the engine. */
export const ownOutcomes: ReadonlySet<FetchOutcome> = new Set(["local", "late"]);

/**
 * A request that timed out while the event loop was late by such a share of its time, in all, and by so many milliseconds, did
 * not have that time: its answer may have waited here. An engine that cannot be reached is found out by later ones, or by requests.
 */
const lateShare = 0.25;
const minLateMs = 100;
/** The same for a timeout that is noticed late: timeouts themselves are looked at now and then. */
const overdueShare = 0.5;
/** How often a request that takes long looks whether the event loop is late, in its time. */
const looks = 8;

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
  const periodMs = request.timeoutMs / looks;
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

/** One phrase for logs: `timeout`, or `status 503`. */
export function describeOutcome({ outcome, status }: Fetched): string {
  return outcome === "status" ? `status ${status}` : outcome;
}

/** Runs an asynchronous step again and again, one at a time. */
interface RepeatLoop {
  /** Starts, or starts afresh, `delayMs` from now; at once when it is 0. */
  start(delayMs: number): void;
  stop(): void;
}

/**
 * @param step does the work and gives the delay to the next run in milliseconds. After awaiting, it asks `isCurrent`
 *   and changes nothing when the loop has been stopped or started afresh meanwhile. It must not throw.
 */
export function createRepeatLoop(
  scheduler: Scheduler,
  step: (isCurrent: () => boolean) => Promise<number>,
): RepeatLoop {
  let generation = 0;
  let cancel: Cancel = () => {};

  const run = async (mine: number): Promise<void> => {
    const delayMs = await step(() => mine === generation);
    if (mine === generation) cancel = scheduler.after(delayMs, () => void run(mine));
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
