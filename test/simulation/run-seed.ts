import type { FaultKind } from "./fault-kinds.ts";
import type { RunCounts } from "./run-counts.ts";
import { shrinkKinds } from "./shrink.ts";
import { drawSwarm } from "./swarm.ts";
import { SwarmRun } from "./swarm-run.ts";

/** What became of one seed. Plain JSON. */
export interface SeedReport {
  readonly seed: number;
  readonly kinds: readonly FaultKind[];
  readonly hash: string | undefined;
  readonly counts: RunCounts | undefined;
  /** Virtual time from the end of all faults until all agreed. */
  readonly convergedMs: number | undefined;
  /** What did not hold. */
  readonly error: string | undefined;
  /** The command that runs it again, with the fewest kinds of faults with which it fails. */
  readonly command: string | undefined;
}

export interface SeedOptions {
  /** Kinds of faults that may be on. All when left out. */
  readonly only?: readonly FaultKind[];
  /** Takes what happens, in words. */
  readonly trace?: (line: string) => void;
}

/** Runs one seed. One that fails is run again with fewer and fewer kinds of faults, unless it is traced. */
export async function runSeed(seed: number, { only, trace }: SeedOptions = {}): Promise<SeedReport> {
  const swarm = drawSwarm(seed, only);
  const { kinds } = swarm;
  try {
    const { hash, counts, convergedMs } = await new SwarmRun(swarm, trace).run();
    return { seed, kinds, hash, counts, convergedMs, error: undefined, command: undefined };
  } catch (thrown) {
    const smallest = trace ? kinds : await shrinkKinds(kinds, (fewer) => fails(seed, fewer));
    const error = thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown);
    const command = commandOf(seed, smallest);
    return { seed, kinds, hash: undefined, counts: undefined, convergedMs: undefined, error, command };
  }
}

async function fails(seed: number, kinds: readonly FaultKind[]): Promise<boolean> {
  try {
    await new SwarmRun(drawSwarm(seed, kinds)).run();
    return false;
  } catch {
    return true;
  }
}

/** `none` stands for a run in which nothing goes wrong. */
export function commandOf(seed: number, kinds: readonly FaultKind[]): string {
  return `npm run simulate:seeds -- --seed ${seed} --only ${kinds.length > 0 ? kinds.join(",") : "none"}`;
}
