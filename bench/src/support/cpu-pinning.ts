import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { setPriority } from "node:os";

/** Which cores what is measured runs on, and which ones everything else. */
export interface CorePlan {
  readonly router: readonly number[];
  readonly others: readonly number[];
}

/** The last core for what is measured, the others for the rest; undefined with fewer than two. */
export function planCores(available: readonly number[]): CorePlan | undefined {
  if (available.length < 2) return undefined;
  return { router: available.slice(-1), others: available.slice(0, -1) };
}

/** Reads a list of cores as Linux writes it: `0-3,8`. */
export function parseCoreList(list: string): readonly number[] {
  return list.split(",").flatMap((range) => {
    const [first = Number.NaN, last = first] = range.split("-").map(Number);
    return Array.from({ length: last - first + 1 }, (_, offset) => first + offset);
  });
}

/** The cores that this process may use, or none where `taskset` (util-linux) cannot tell. */
function availableCores(): readonly number[] {
  const { status, stdout } = spawnSync("taskset", ["-cp", String(process.pid)], { encoding: "utf8" });
  const list = status === 0 ? /:\s*([\d,-]+)\s*$/.exec(stdout)?.[1] : undefined;
  return list === undefined ? [] : parseCoreList(list);
}

/**
 * Ties a process with all its threads to some cores. Children that it starts afterwards inherit that.
 *
 * @throws Error when the system refuses
 */
export function pinProcess(pid: number, cores: readonly number[]): void {
  const { status, stderr } = spawnSync("taskset", ["-acp", cores.join(","), String(pid)], { encoding: "utf8" });
  if (status !== 0) throw new Error(`taskset cannot tie process ${pid} to cores ${cores}: ${stderr}`);
}

/** Better than anything that has not asked for it. */
const highPriority = -15;
const ownGroup = "/proc/self/autogroup";

/**
 * Gives this process and all that it starts from now on every core but the one that is measured.
 *
 * @param isFirst whether they, and what is measured, go before other programs of this machine; needs to be root
 * @throws Error when the priority is refused
 */
export function reserveCore(isFirst = false): CorePlan | undefined {
  const plan = planCores(availableCores());
  if (plan) pinProcess(process.pid, plan.others);
  if (isFirst) goFirst();
  return plan;
}

function goFirst(): void {
  setPriority(highPriority);
  // Where Linux groups processes by terminal session, priorities count within a group only: it is given one until the end.
  if (!existsSync(ownGroup)) return;
  const [, before = "0"] = /nice (-?\d+)/.exec(readFileSync(ownGroup, "latin1")) ?? [];
  writeFileSync(ownGroup, String(highPriority));
  process.once("exit", () => writeFileSync(ownGroup, before));
}
