import {
  asRouterId,
  type Cancel,
  createSeededRandom,
  type Meter,
  type Metric,
  silentLogger,
  systemClock,
  systemCpuMs,
  systemScheduler,
} from "@espalier/core";
import { createMesh, createWsTransport, type Mesh } from "@espalier/mesh";
import { createPrefixIndex } from "@espalier/prefix-index";
import { createReplica, createTargetSlots, idleGauge, type Replica } from "@espalier/shared-tree";
import type { Figures } from "../support/median-spread.ts";
import { pauseFor, untilNothingMissing } from "../support/until.ts";

export interface LinksSizes {
  readonly routers: number;
  /** How long routers are measured idle, and how long under load. */
  readonly seconds: number;
  /** Gauge frames that all routers together send per second: few enough for one event loop. */
  readonly framesPerS: number;
}

interface Router {
  readonly replica: Replica;
  readonly mesh: Mesh;
}

/** Targets whose gauges change in rotation. */
const targets = 64;
const loopback = "127.0.0.1";
const linkDeadlineMs = 120_000;
/** One event loop does the work of all routers, so a slow router is not dead while they link. */
const timeoutMs = 60_000;
const settleMs = 2_000;
const changeTickMs = 20;

/**
 * Links the routers with each other over real sockets in this process, leaves them idle, then changes their gauges.
 *
 * @returns figures per router: gauge frames and bytes that it sends per second, bytes of all kinds, share of a core
 * @throws Error when the links do not come up
 */
export async function measureLinks({ routers: count, seconds, framesPerS }: LinksSizes): Promise<Figures> {
  const meter = createTally();
  const routers: Router[] = [];
  try {
    // One after the other: otherwise one event loop would do 64 times what a router does for peers without links.
    for (let at = 0; at < count; at++) {
      routers.push(await startRouter(at, routers[0]?.mesh.address, meter));
      await untilNothingMissing(
        async () => (routers.every(({ mesh }) => linkCount(mesh) === at) ? undefined : "the links are not up"),
        linkDeadlineMs,
        { clock: systemClock, scheduler: systemScheduler },
      );
    }
    await pauseFor(Math.min(settleMs, seconds * 1_000), systemScheduler);
    const idle = await measure(meter, count, seconds);
    const changesPerS = framesPerS / (count * (count - 1));
    const cancels = routers.map(({ replica }) => change(replica, changesPerS));
    await pauseFor(Math.min(settleMs / 2, seconds * 1_000), systemScheduler);
    const loaded = await measure(meter, count, seconds);
    for (const cancel of cancels) cancel();
    const loadCpuUs = (loaded.cpu_share - idle.cpu_share) * 1e6;
    return {
      ...named("idle_", idle),
      ...named("loaded_", loaded),
      load_cpu_share: loaded.cpu_share - idle.cpu_share,
      cpu_us_per_load_frame: loadCpuUs / (loaded.load_frames_per_s - idle.load_frames_per_s),
    };
  } finally {
    await Promise.all(routers.map(({ mesh }) => mesh.stop()));
    await Promise.all(routers.map(({ replica }) => replica.stop()));
  }
}

async function startRouter(at: number, seed: string | undefined, meter: Meter): Promise<Router> {
  const ports = { clock: systemClock, scheduler: systemScheduler, logger: silentLogger, meter };
  const slots = createTargetSlots(targets);
  const index = createPrefixIndex({ maxTargets: targets });
  const router = asRouterId(`router-${at}`);
  const replica = createReplica({ ...ports, router, index, slots, placementTtlMs: 60_000 });
  const mesh = createMesh({
    ...ports,
    replica: replica.ports,
    transport: createWsTransport({ host: loopback, port: 0, scheduler: systemScheduler, connectTimeoutMs: timeoutMs }),
    linkLimits: { handshakeTimeoutMs: timeoutMs, silentMs: timeoutMs },
    membershipLimits: { silentMs: timeoutMs },
    cluster: "bench",
    fleetSeed: "bench",
    blockSizeTokens: 16,
    security: { kind: "insecure" },
    seeds: seed === undefined ? [] : [seed],
    random: createSeededRandom(at + 1),
  });
  mesh.onMembers(() => replica.setMembers(mesh.members()));
  for (let target = 0; target < targets; target++) slots.slotOf(keyOf(target));
  await replica.start();
  await mesh.start();
  return { replica, mesh };
}

const keyOf = (target: number): string => `engine-${target}/0`;

const linkCount = (mesh: Mesh): number => mesh.members().filter(({ isLinked }) => isLinked).length;

/** Changes gauges in rotation, evenly in time. */
function change({ load }: Replica, changesPerS: number): Cancel {
  let done = 0;
  const startMs = systemClock.nowMs();
  return systemScheduler.every(changeTickMs, () => {
    for (const due = ((systemClock.nowMs() - startMs) * changesPerS) / 1_000; done < due; done++) {
      const inFlight = 1 + (done % 1_000);
      const rest = {
        decodeTokens: inFlight * 700,
        pendingWorkMs: inFlight * 3,
        activeTokens: inFlight * 900,
      };
      load.set(keyOf(done % targets), { ...idleGauge, inFlight, pendingPrefillTokens: inFlight * 200, ...rest });
    }
  });
}

async function measure(meter: Tally, routers: number, seconds: number) {
  const read = () => ({
    atMs: systemClock.nowMs(),
    cpuMs: systemCpuMs(),
    frames: meter.value("espalier_mesh_sent_frames_total", "load"),
    loadBytes: meter.value("espalier_mesh_sent_bytes_total", "load"),
    bytes: meter.sum("espalier_mesh_sent_bytes_total"),
  });
  const before = read();
  await pauseFor(seconds * 1_000, systemScheduler);
  const after = read();
  const elapsedMs = after.atMs - before.atMs;
  const perS = (of: "frames" | "loadBytes" | "bytes") => ((after[of] - before[of]) / routers / elapsedMs) * 1_000;
  return {
    load_frames_per_s: perS("frames"),
    load_bytes_per_s: perS("loadBytes"),
    bytes_per_s: perS("bytes"),
    cpu_share: (after.cpuMs - before.cpuMs) / elapsedMs / routers,
  };
}

function named(prefix: string, figures: Figures): Figures {
  return Object.fromEntries(Object.entries(figures).map(([name, value]) => [`${prefix}${name}`, value]));
}

/** A meter that sums all routers' counters, at almost no cost. */
interface Tally extends Meter {
  value(name: string, label: string): number;
  sum(name: string): number;
}

function createTally(): Tally {
  const counts = new Map<string, { count: number }>();
  const metric = (name: string): Metric<Series> => ({
    series(...labels) {
      const key = [name, ...labels].join(" ");
      const entry = counts.get(key) ?? { count: 0 };
      counts.set(key, entry);
      const add = (amount = 1): void => {
        entry.count += amount;
      };
      return { add, set: () => {}, observe: () => {} };
    },
    forget: () => {},
  });
  return {
    counter: metric,
    gauge: metric,
    histogram: metric,
    value: (name, label) => counts.get(`${name} ${label}`)?.count ?? 0,
    sum: (name) => [...counts].reduce((sum, [key, { count }]) => sum + (key.startsWith(`${name} `) ? count : 0), 0),
  };
}

interface Series {
  add(amount?: number): void;
  set(value: number): void;
  observe(value: number): void;
}
