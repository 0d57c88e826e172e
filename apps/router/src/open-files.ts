import { readFileSync } from "node:fs";
import { UsageError } from "./cli/read-flags.ts";

/** With fewer, a router cannot load its own modules and serve requests. */
const leastOpenFiles = 512;

/** Files and sockets that this process may have open at once; Infinity if unknown, because only Linux reports it. */
export function openFileLimit(): number {
  try {
    const [, soft] = /^Max open files\s+(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8")) ?? [];
    return soft === undefined ? Number.POSITIVE_INFINITY : Number(soft);
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}

/** @throws UsageError when there are too few for a router */
export function checkOpenFiles(limit: number): void {
  if (limit >= leastOpenFiles) return;
  throw new UsageError(
    `a router needs to have ${leastOpenFiles} files open at once, and may have ${limit}: raise it with \`ulimit -n 65536\`, or LimitNOFILE= of its systemd unit`,
  );
}
