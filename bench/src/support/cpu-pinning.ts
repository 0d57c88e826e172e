import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { setPriority } from "node:os";
import { flag } from "./params.ts";

/** The cores for measured programs, and those for everything else. */
export interface CorePlan {
  readonly router: readonly number[];
  readonly others: readonly number[];
}

/** The last core for measured programs, the others for the rest; undefined with fewer than two. */
export function planCores(available: readonly number[]): CorePlan | undefined {
  if (available.length < 2) return undefined;
  return { router: available.slice(-1), others: available.slice(0, -1) };
}

/** Reads a list of cores in Linux's format: `0-3,8`. */
export function parseCoreList(list: string): readonly number[] {
  return list.split(",").flatMap((range) => {
    const [first = Number.NaN, last = first] = range.split("-").map(Number);
    return Array.from({ length: last - first + 1 }, (_, offset) => first + offset);
  });
}

/** The cores that this process may use; none when `taskset` (util-linux) cannot say. */
function availableCores(): readonly number[] {
  const { status, stdout } = spawnSync("taskset", ["-cp", String(process.pid)], { encoding: "utf8" });
  const list = status === 0 ? /:\s*([\d,-]+)\s*$/.exec(stdout)?.[1] : undefined;
  return list === undefined ? [] : parseCoreList(list);
}

/**
 * Pins a process with all its threads to some cores. Children that it starts later inherit them.
 *
 * @throws Error when the system refuses
 */
export function pinProcess(pid: number, cores: readonly number[]): void {
  const { status, stderr } = spawnSync("taskset", ["-acp", cores.join(","), String(pid)], { encoding: "utf8" });
  if (status !== 0) throw new Error(`taskset cannot tie process ${pid} to cores ${cores}: ${stderr}`);
}

/** The flag for what goes first. */
export const priorityParam = flag("all of it before other programs of this machine; needs root");

/** Above the default priority. */
const highPriority = -15;
const ownGroup = "/proc/self/autogroup";

/**
 * Pins this process, and everything it starts from now on, to all cores except the measured one.
 *
 * @param isFirst whether these and the measured programs take priority over other programs of the machine; requires
 * root
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
  // Where Linux groups processes by terminal session, priorities count only within a group. The group gets one until
  // the end.
  if (!existsSync(ownGroup)) return;
  const [, before = "0"] = /nice (-?\d+)/.exec(readFileSync(ownGroup, "latin1")) ?? [];
  writeFileSync(ownGroup, String(highPriority));
  process.once("exit", () => writeFileSync(ownGroup, before));
}
