import { getHeapStatistics } from "node:v8";
import {
  type Cancel,
  type Clock,
  EspalierError,
  type Logger,
  type Meter,
  type Scheduler,
  type Startable,
} from "@espalier/common";

/** How often pressure is looked at. */
const periodMs = 100;
/** A pause that is over within so many looks, such as one of the garbage collector, is no pressure. */
const patienceLooks = 5;
/** By how much of all new requests the refused ones grow with each look under pressure, and shrink with each one without. */
const growth = 0.1;
const decline = 0.05;
const retryAfterSeconds = 2;

export interface OverloadLimits {
  /** How late the event loop may come to its timers, all of half a second through. */
  readonly maxEventLoopDelayMs: number;
  /** Share, 0 to 1, of the heap that V8 may use at most. */
  readonly maxHeapShare: number;
  /** Bytes that may wait to be sent to other routers, all together. */
  readonly maxMeshBufferBytes: number;
}

export interface OverloadDependencies {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly logger: Logger;
  readonly meter: Meter;
  readonly limits: () => OverloadLimits;
  /** Share of the heap in use; that of this process unless given. */
  readonly heapShare?: () => number;
  /** Of the request bodies in flight; only told, for they are bounded exactly where they come in. */
  readonly bodyBytes: () => number;
  /** What waits to be sent to other routers. */
  readonly meshBytes: () => number;
}

/** Refuses a share of the new requests while the router itself has too little time, memory or room towards others. */
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
 * Requests that are under way go on: refusing new ones early is what keeps these in time. The share that is refused grows
 * from look to look until the pressure is gone, and falls slowly, so that load settles where the router can bear it.
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
    if (delays.length > patienceLooks) delays.shift();
    const delayMs = delays.length < patienceLooks ? 0 : Math.min(...delays);
    const [heap, mesh] = [heapShare(), meshBytes()];
    meters.delay.set(delayMs / 1_000);
    meters.heap.set(heap);
    meters.bodies.set(bodyBytes());
    meters.mesh.set(mesh);
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
    if (was === 0 && share > 0) logger.warn("new requests are refused: the router is short of resources", { pressure });
    if (was > 0 && share === 0) logger.info("new requests are taken again");
    meters.share.set(share);
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
  const shed = meter.counter({
    name: "espalier_shed_requests_total",
    help: "Requests refused because the router itself was short of time, of memory, or of room towards other routers.",
    labels: ["pressure"],
  });
  const gauge = (name: string, help: string) => meter.gauge({ name, help }).series();
  return {
    shed: (pressure: Pressure) => shed.series(pressure).add(),
    delay: gauge("espalier_event_loop_delay_seconds", "How late timers came at least, over half a second."),
    heap: gauge("espalier_heap_used_ratio", "Heap in use, of what V8 may use at most."),
    bodies: gauge("espalier_request_body_bytes", "Bytes of the bodies of requests in flight, as declared or read."),
    mesh: gauge("espalier_mesh_waiting_bytes", "Bytes that wait to be sent to other routers, on all links together."),
    share: gauge("espalier_shed_ratio", "Share of new requests that is refused for such a want."),
  };
}

function usedHeapShare(): number {
  const { used_heap_size, heap_size_limit } = getHeapStatistics();
  return used_heap_size / heap_size_limit;
}
