import type { Figures } from "../support/median-spread.ts";
import { type FlowShape, type FlowTick, ReplicationFlow } from "./replication-flow.ts";
import { measureRestarts, type RestartShape } from "./replication-restarts.ts";
import { measureWire, type WireShape } from "./replication-wire.ts";

/** The amount of work in one run. */
export interface ReplicationSizes {
  readonly flow: FlowShape;
  /** Virtual duration of each rate. */
  readonly rateSeconds: number;
  readonly turnover: FlowShape;
  /** Block changes as a multiple of the blocks in the engines. */
  readonly turnovers: number;
  readonly wire: WireShape;
  readonly restarts: RestartShape;
}

export interface ReplicationPorts {
  /** CPU time of this process in milliseconds. */
  readonly cpuMs: () => number;
  readonly note: (line: string) => void;
}

/** Changes per second over all feeds. */
const rates = [
  { name: "100k", perS: 100_000 },
  { name: "500k", perS: 500_000 },
] as const;
/** Warm-up ticks before each rate. */
const warmUpTicks = 40;
/** Changes per tick when only their number matters. */
const turnoverTickOps = 20_000;

/** @throws Error when a replica's blocks differ from the engines', because no figure means anything then */
export async function runReplicationOnce(sizes: ReplicationSizes, ports: ReplicationPorts): Promise<Figures> {
  const { note } = ports;
  const rateFigures = measureRates(sizes, ports);
  note("rates measured");
  const turnover = measureTurnover(sizes.turnover, turnoverOps(sizes), ports);
  note("turnover measured");
  const wire = await measureWire(sizes.wire);
  note("bytes on a link measured");
  return { ...wire, ...rateFigures, ...turnover, ...measureRestarts(sizes.restarts) };
}

function measureRates({ flow: shape, rateSeconds }: ReplicationSizes, { cpuMs }: ReplicationPorts): Figures {
  const flow = new ReplicationFlow(shape, cpuMs);
  flow.fill();
  flow.check();
  const figures: Record<string, number> = {};
  const all: FlowTick[] = [];
  for (const { name, perS } of rates) {
    const ops = (perS * shape.tickMs) / 1_000;
    for (let tick = 0; tick < warmUpTicks; tick++) flow.tick(ops);
    const ticks = Array.from({ length: Math.ceil((rateSeconds * 1_000) / shape.tickMs) }, () => flow.tick(ops));
    const usedMs = total(ticks, "ownMs") + total(ticks, "othersMs");
    figures[`cpu_share_${name}`] = usedMs / (ticks.length * shape.tickMs);
    all.push(...ticks);
  }
  flow.check();
  flow.stop();
  return {
    ...figures,
    yjs_bytes_per_op: total(all, "yjsBytes") / total(all, "othersOps"),
    local_ops_per_s: (total(all, "ownOps") / total(all, "ownMs")) * 1_000,
    remote_ops_per_s: (total(all, "othersOps") / total(all, "othersMs")) * 1_000,
  };
}

/** Changes that replace everything `turnovers` times: replacing a block is one removal and one store. */
const turnoverOps = ({ turnover, turnovers }: ReplicationSizes): number =>
  2 * turnovers * turnover.feeds * turnover.blocksPerFeed;

/** Memory before and after this many changes; also for `--ops`. */
export function measureTurnover(shape: FlowShape, ops: number, { cpuMs, note }: ReplicationPorts): Figures {
  const flow = new ReplicationFlow(shape, cpuMs);
  flow.fill();
  flow.check();
  const size = () => {
    const { journals, fold, index, blocks } = flow.measured.sizes();
    return { shared: (journals + fold) / blocks, all: (journals + fold + index) / blocks };
  };
  const start = size();
  let worst = start;
  let done = 0;
  let yjsBytes = 0;
  let othersOps = 0;
  for (let noted = 1; done < ops; ) {
    const tick = flow.tick(turnoverTickOps);
    done += tick.ownOps + tick.othersOps;
    yjsBytes += tick.yjsBytes;
    othersOps += tick.othersOps;
    const now = size();
    if (now.all > worst.all) worst = now;
    if (done < (noted * ops) / 10) continue;
    note(`${(done / 1e6).toFixed(1)} M changes: ${now.shared.toFixed(1)} B of journals per live block`);
    noted += 1;
  }
  const end = size();
  flow.check();
  flow.stop();
  return {
    changes: done,
    bytes_per_live_block: end.shared,
    bytes_per_live_block_start: start.shared,
    bytes_per_live_block_worst: worst.shared,
    bytes_per_live_block_with_index: end.all,
    growth_after_turnover: end.all / start.all,
    growth_worst: worst.all / start.all,
    turnover_yjs_bytes_per_op: yjsBytes / othersOps,
  };
}

function total(ticks: readonly FlowTick[], of: keyof FlowTick): number {
  return ticks.reduce((sum, tick) => sum + tick[of], 0);
}
