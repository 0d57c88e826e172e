import { readdirSync, readFileSync } from "node:fs";
import type { ProcessUsage } from "./process-usage.ts";

/** Linux reports CPU time to programs in hundredths of a second, regardless of the kernel's own unit. */
const ticksPerSecond = 100;
const bytesPerKilobyte = 1_024;
/** Maximum processes in one tree; a larger tree is not a router's. */
const maxProcesses = 64;

/**
 * Reads from `/proc` the use of a process and all its descendants, so that programs that report nothing about
 * themselves can be measured too.
 *
 * @param root an absolute path that replaces `/proc`
 * @throws Error when the process is gone, or its tree has more than 64 processes
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
  // `utime` and `stime` are fields 14 and 15 in proc(5). Here index 0 is field 3, the state.
  return Number(fields[11]) + Number(fields[12]);
}

function readResidentBytes(status: string): number {
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1] ?? 0) * bytesPerKilobyte;
}
