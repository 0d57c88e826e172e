import { readdirSync, readFileSync } from "node:fs";
import type { ProcessUsage } from "./process-usage.ts";

/** Linux reports CPU time to programs in hundredths of a second, whatever the kernel counts in. */
const ticksPerSecond = 100;
const bytesPerKilobyte = 1_024;
/** Processes of one tree; a tree with more is not one of a router. */
const maxProcesses = 64;

/**
 * Reads from `/proc` what a process and all that it has started use, so that programs that say nothing of themselves are
 * measured like any other.
 *
 * @param root an absolute path in place of `/proc`
 * @throws Error when the process is gone, or it is a tree of more than 64 processes
 */
export function readTreeUsage(pid: number, root = "/proc"): ProcessUsage {
  let cpuTicks = 0;
  let residentBytes = 0;
  const pids = [pid];
  for (let at = 0; at < pids.length; at++) {
    const folder = `${root}/${pids[at]}`;
    cpuTicks += readTicks(readFileSync(`${folder}/stat`, "latin1"));
    residentBytes += readResidentBytes(readFileSync(`${folder}/status`, "latin1"));
    for (const task of readdirSync(`${folder}/task`)) {
      const children = readFileSync(`${folder}/task/${task}/children`, "latin1").trim();
      if (children !== "") pids.push(...children.split(" ").map(Number));
    }
    if (pids.length > maxProcesses) throw new Error(`process ${pid} is a tree of more than ${maxProcesses} processes`);
  }
  return { cpuSeconds: cpuTicks / ticksPerSecond, residentBytes };
}

/** @param stat the line of `/proc/PID/stat`; the name in it may contain spaces and parentheses */
function readTicks(stat: string): number {
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  // `utime` and `stime`, the 14th and 15th field of proc(5), of which the state, the third, comes first here.
  return Number(fields[11]) + Number(fields[12]);
}

function readResidentBytes(status: string): number {
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1] ?? 0) * bytesPerKilobyte;
}
