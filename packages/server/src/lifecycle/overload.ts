import { getHeapStatistics } from "node:v8";
import {
  type Cancel,
  type Clock,
  counterBy,
  EspalierError,
  gaugeOf,
  type Logger,
  type Meter,
  type Scheduler,
  type Startable,
} from "@espalier/core";

/** How often pressure is measured. */
const periodMs = 100;
/** Shorter pauses, in measurements, such as a garbage collection, do not count as pressure. */
const sustainedLooks = 5;
/** Change of the shed share per measurement, under pressure and without. */
const growth = 0.1;
const decline = 0.05;
const retryAfterSeconds = 2;

interface OverloadLimits {
  /** Most event-loop delay, sustained for half a second. */
  readonly maxEventLoopDelayMs: number;
  /** Most heap in use, as a share from 0 to 1 of V8's limit. */
  readonly maxHeapShare: number;
  /** Most bytes that wait to be sent to other routers. */
  readonly maxMeshBufferBytes: number;
}

export interface OverloadDependencies {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly logger: Logger;
  readonly meter: Meter;
  readonly limits: () => OverloadLimits;
  /** Share of the heap in use; this process's by default. */
  readonly heapShare?: () => number;
  /** Bytes of request bodies in flight. Only exported as a metric, since they have a limit of their own. */
  readonly bodyBytes: () => number;
  /** Bytes that wait to be sent to other routers. */
  readonly meshBytes: () => number;
}

/** Sheds a share of new requests while the router itself lacks time, memory or bandwidth to its peers. */
export interface Overload extends Startable {
  /** @throws EspalierError `overloaded` for a request that is refused */
  admit(): void;
}

type Pressure = "event-loop" | "heap" | "mesh";

const shortOf: Readonly<Record<Pressure, string>> = {
  "event-loop": "processor time",
  heap: "memory",
  mesh: "bandwidth to other routers",
};

/**
 * Requests in progress continue; early shedding keeps them within their deadlines. The shed share grows until the
 * pressure is gone and then falls slowly, so that load settles at what the router can sustain.
 */
export function createOverload({ clock, scheduler, logger, meter, limits, ...others }: OverloadDependencies): Overload {
  const { heapShare = usedHeapShare, bodyBytes, meshBytes } = others;
  const meters = createMeters(meter);
  const delays: number[] = [];
  let dueMs = 0;
  let cancel: Cancel = () => {};
  let share = 0;
  let owed = 0;
  let pressure: Pressure | undefined;

  const look = (): void => {
    const nowMs = clock.nowMs();
    delays.push(Math.max(0, nowMs - dueMs));
    if (delays.length > sustainedLooks) delays.shift();
    const delayMs = delays.length < sustainedLooks ? 0 : Math.min(...delays);
    const [heap, mesh] = [heapShare(), meshBytes()];
    meters.delay(delayMs / 1_000);
    meters.heap(heap);
    meters.bodies(bodyBytes());
    meters.mesh(mesh);
    settle(pressureOf(delayMs, heap, mesh));
    dueMs = nowMs + periodMs;
    cancel = scheduler.after(periodMs, look);
  };
  const pressureOf = (delayMs: number, heap: number, meshBuffer: number): Pressure | undefined => {
    const { maxEventLoopDelayMs, maxHeapShare, maxMeshBufferBytes } = limits();
    if (heap > maxHeapShare) return "heap";
    if (meshBuffer > maxMeshBufferBytes) return "mesh";
    return delayMs > maxEventLoopDelayMs ? "event-loop" : undefined;
  };
  const settle = (found: Pressure | undefined): void => {
    const was = share;
    share = found ? Math.min(1, share + growth) : Math.max(0, share - decline);
    if (found) pressure = found;
    if (was === 0 && share > 0) logger.warn("router overloaded: shedding new requests", { pressure });
    if (was > 0 && share === 0) logger.info("router recovered: accepting new requests");
    meters.share(share);
  };
  return {
    async start() {
      dueMs = clock.nowMs() + periodMs;
      cancel = scheduler.after(periodMs, look);
    },
    async stop() {
      cancel();
    },
    admit() {
      if (share === 0) return;
      owed += share;
      if (owed < 1) return;
      owed -= 1;
      meters.shed(pressure!);
      throw new EspalierError("overloaded", `The router is short of ${shortOf[pressure!]}.`, { retryAfterSeconds });
    },
  };
}

function createMeters(meter: Meter) {
  const gauge = (name: string, help: string) => gaugeOf(meter, name, help);
  return {
    shed: counterBy<Pressure>(
      meter,
      "pressure",
      "espalier_shed_requests_total",
      "Requests shed by router overload, by pressure: event loop, memory, or bandwidth to other routers.",
    ),
    delay: gauge(
      "espalier_event_loop_delay_seconds",
      "Lowest event-loop delay within the last half second, in seconds.",
    ),
    heap: gauge("espalier_heap_used_ratio", "Share of V8's heap limit in use."),
    bodies: gauge("espalier_request_body_bytes", "Bytes of request bodies in flight, as declared or read."),
    mesh: gauge("espalier_mesh_queued_bytes", "Bytes queued for other routers, over all links."),
    share: gauge("espalier_shed_ratio", "Share of new requests shed."),
  };
}

function usedHeapShare(): number {
  const { used_heap_size, heap_size_limit } = getHeapStatistics();
  return used_heap_size / heap_size_limit;
}
