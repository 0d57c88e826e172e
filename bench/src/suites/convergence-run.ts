import { askAll, type NodePorts, withFilledNodes } from "../mesh-node/filled-nodes.ts";
import type { MeshNodeStats, NumberedTimes } from "../mesh-node/mesh-node-messages.ts";
import type { MeshNodeProcess } from "../mesh-node/mesh-node-process.ts";
import { createWallTime } from "../mesh-node/wall-time.ts";
import type { Figures } from "../support/median-spread.ts";
import { pauseFor } from "../support/until.ts";

export interface ConvergenceSizes {
  readonly routers: number;
  readonly targets: number;
  readonly blocksPerTarget: number;
  /** Blocks stored and removed a second, at all routers together. */
  readonly ratePerS: number;
  readonly durationMs: number;
  /** Redis that carries the mesh; absent for direct links. */
  readonly redisUrl?: string;
  /** CPU time that the carrier of the mesh has used, in seconds; absent where links have none. */
  readonly carrierCpuS?: () => number;
}

/** A failure after the measured time, while changes go on. */
export interface Outage {
  readonly begin: () => Promise<void>;
  readonly end: () => Promise<void>;
  readonly durationMs: number;
}

/** Per second and router, so that the few probes barely affect the measurement. */
const probesPerS = 20;
const gaugesPerS = 20;
const warmUpMs = 1_000;
/** How long the last changes may take to become visible. */
const lastChangesMs = 2_000;
/** The same after an outage. */
const afterOutageMs = 20_000;

/**
 * Runs routers as processes that each read their share of the targets, and measures when all others know what one of
 * them learns. All processes share the cores of the machine, and one clock.
 *
 * @throws Error when they do not find each other
 */
export async function measureConvergence(
  sizes: ConvergenceSizes,
  ports: NodePorts<Pick<MeshNodeProcess, "address" | "ask" | "stop">>,
  outage?: Outage,
): Promise<Figures> {
  const ids = Array.from({ length: sizes.routers }, (_, router) => `router-${router}`);
  const plans = ids.map((routerId, router) => ({ routerId, ...nodePlan(sizes, router) }));
  return withFilledNodes(plans, ports, async (nodes) => {
    await askAll(nodes, "start");
    await pauseFor(warmUpMs, ports.scheduler);
    await askAll(nodes, "reset");
    const { carrierCpuS } = sizes;
    const carrierBeforeS = carrierCpuS?.();
    await pauseFor(sizes.durationMs, ports.scheduler);
    const carrierS = carrierCpuS && carrierCpuS() - carrierBeforeS!;
    const atWork = await askAll(nodes, "stats");
    if (!outage) await askAll(nodes, "stop");
    await pauseFor(lastChangesMs, ports.scheduler);
    const figures = {
      ...convergenceFigures(atWork, await askAll(nodes, "stats"), ids),
      ...(carrierS === undefined ? {} : { carrier_cpu_share: (carrierS * 1_000) / sizes.durationMs }),
    };
    if (!outage) return figures;
    const wallTime = createWallTime(ports.clock);
    await askAll(nodes, "reset");
    await outage.begin();
    await pauseFor(outage.durationMs, ports.scheduler);
    const during = await askAll(nodes, "stats");
    await outage.end();
    const backMs = wallTime.nowMs();
    await pauseFor(afterOutageMs, ports.scheduler);
    await askAll(nodes, "stop");
    await pauseFor(lastChangesMs, ports.scheduler);
    return { ...figures, ...outageFigures(during, await askAll(nodes, "stats"), ids, backMs) };
  });
}

/**
 * @param atWork each router's state at the end of the measured time
 * @param after the same after the last changes have arrived; `atWork` shows what was sent, `after` what was seen
 * @param ids of the routers, in the same order
 */
export function convergenceFigures(
  atWork: readonly MeshNodeStats[],
  after: readonly MeshNodeStats[],
  ids: readonly string[],
): Figures {
  const visible = delaysToAll(atWork, after, ids, { sent: "probesSent", seen: "probesSeen" });
  const load = delaysToAll(atWork, after, ids, { sent: "gaugesSent", seen: "gaugesSeen" });
  const mean = (of: (stats: MeshNodeStats) => number): number =>
    atWork.reduce((sum, stats) => sum + of(stats), 0) / atWork.length;
  const ops = atWork.reduce((sum, stats) => sum + stats.ops, 0);
  const elapsedS = mean(({ elapsedMs }) => elapsedMs) / 1_000;
  const offered = ops + atWork.reduce((sum, stats) => sum + stats.skippedOps, 0);
  return {
    visible_p50_ms: quantile(visible.delaysMs, 0.5),
    visible_p99_ms: quantile(visible.delaysMs, 0.99),
    load_p50_ms: quantile(load.delaysMs, 0.5),
    load_p99_ms: quantile(load.delaysMs, 0.99),
    cpu_share_per_router: mean(({ cpuMs, elapsedMs }) => cpuMs / elapsedMs),
    cpu_us_per_op: (mean(({ cpuMs }) => cpuMs) * 1_000) / Math.max(1, ops),
    bytes_per_s_per_link: mean(({ sentBytes }) => sentBytes) / elapsedS / Math.max(1, ids.length - 1),
    ops_per_s: ops / elapsedS,
    skipped_share: offered === 0 ? 0 : 1 - ops / offered,
    probes: visible.delaysMs.length,
    probes_not_seen_by_all: visible.missing,
  };
}

/**
 * @param during each router's state at the end of an outage
 * @param after the same once all have received what they will
 * @param backMs when the outage ended, in milliseconds since the Unix epoch
 */
export function outageFigures(
  during: readonly MeshNodeStats[],
  after: readonly MeshNodeStats[],
  ids: readonly string[],
  backMs: number,
): Figures {
  const { arrivalsMs, missing } = delaysToAll(during, after, ids, { sent: "probesSent", seen: "probesSeen" });
  return {
    outage_probes: arrivalsMs.length + missing,
    outage_probes_not_seen_by_all: missing,
    agree_again_ms: arrivalsMs.reduce((latest, atMs) => Math.max(latest, atMs - backMs), 0),
  };
}

/** How long the last of the other routers took to receive each change, and when. */
function delaysToAll(
  atWork: readonly MeshNodeStats[],
  after: readonly MeshNodeStats[],
  ids: readonly string[],
  of: { readonly sent: "probesSent" | "gaugesSent"; readonly seen: "probesSeen" | "gaugesSeen" },
): { readonly delaysMs: readonly number[]; readonly arrivalsMs: readonly number[]; readonly missing: number } {
  const delaysMs: number[] = [];
  const arrivalsMs: number[] = [];
  let missing = 0;
  for (const [writer, id] of ids.entries()) {
    const seen = after.flatMap((stats, reader) => (reader === writer ? [] : [new Map(stats[of.seen][id] ?? [])]));
    const sent: NumberedTimes = atWork[writer]?.[of.sent] ?? [];
    for (const [number, sentMs] of sent) {
      const times = seen.map((byNumber) => byNumber.get(number));
      const last = times.reduce<number>((latest, atMs) => Math.max(latest, atMs ?? Number.POSITIVE_INFINITY), sentMs);
      if (Number.isFinite(last)) {
        delaysMs.push(last - sentMs);
        arrivalsMs.push(last);
      } else missing++;
    }
  }
  return { delaysMs, arrivalsMs, missing };
}

/** 0 without values. */
function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

function nodePlan({ routers, targets, blocksPerTarget, ratePerS, redisUrl }: ConvergenceSizes, router: number) {
  const own = Array.from({ length: targets }, (_, target) => target).filter((target) => target % routers === router);
  return {
    targets: own.map((target) => `engine-${target}/0`),
    ...{ blocksPerTarget, ratePerS: ratePerS / routers, probesPerS, gaugesPerS, seed: 1 },
    ...(redisUrl === undefined ? {} : { redisUrl }),
  };
}
