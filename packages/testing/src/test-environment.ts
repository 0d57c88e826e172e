import { createSocket } from "node:dgram";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { systemClock } from "@espalier/core";

/**
 * How deep property tests go: `full` in `npm run test:all`, a tenth of it in `npm test`, which runs far more often.
 */
const isFull = process.env.TEST_DEPTH === "full";
const quickShare = 0.1;
const fewestRuns = 3;

/** Random runs that a property test makes.
 * @param full in `npm run test:all` */
export function randomRuns(full: number): number {
  return isFull ? full : Math.min(full, Math.max(fewestRuns, Math.round(full * quickShare)));
}

/** Fixed seeds from `first` on, as many as `randomRuns(full)`. */
export function fixedSeeds(full: number, first = 0): readonly number[] {
  return Array.from({ length: randomRuns(full) }, (_, at) => first + at);
}

const repository = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "..");

/**
 * The path of a file or folder under `shared/`, which holds real traces and captures of real engines and is next to the
 * repository. `ESPALIER_SHARED` overrides its place.
 *
 * @returns the path, or undefined (after saying so in one line) when it is absent, so that the test can be skipped
 */
export function sharedPath(...segments: string[]): string | undefined {
  const path = join(process.env.ESPALIER_SHARED ?? join(repository, "..", "shared"), ...segments);
  if (existsSync(path)) return path;
  process.stderr.write(`NOT RUN: tests that need shared/${segments.join("/")}, which is absent\n`);
  return undefined;
}

export interface WaitOptions {
  /** The condition, for the error message. */
  readonly what: string;
  readonly deadlineMs?: number;
}

/**
 * Polls `probe` every few milliseconds until it returns something other than `undefined` or `false`.
 *
 * @throws Error naming `what` when the deadline passes
 */
export async function waitFor<T>(
  probe: () => T | undefined | false | Promise<T | undefined | false>,
  { what, deadlineMs = 30_000 }: WaitOptions,
): Promise<T> {
  const startMs = systemClock.nowMs();
  for (;;) {
    const found = await probe();
    if (found !== undefined && found !== false) return found;
    if (systemClock.nowMs() - startMs > deadlineMs) throw new Error(`no ${what} within ${deadlineMs} ms`);
    await new Promise<void>((resolve) => setTimeout(resolve, 5));
  }
}

/** Below the ephemeral ports, because an outgoing connection may take any of those at any time. */
const firstPort = 15_000;
const portCount = 15_000;
const attempts = 200;

/** The next candidate. Parallel test processes begin at different ports, and skip those of others. */
let next = (process.pid * 7_919) % portCount;

/**
 * A port that is free at all these addresses, and that neither this process nor one that still runs was given before: no other
 * test and no outgoing connection takes it, also while nobody listens there.
 *
 * @throws Error when no port of 200 is free
 */
export async function freePort(hosts: readonly string[] = ["127.0.0.1"]): Promise<number> {
  for (let attempt = 0; attempt < attempts; attempt++) {
    const port = firstPort + next;
    next = (next + 1) % portCount;
    if (!(await reserve(port))) continue;
    const servers = hosts.map((host) => createServer().listen(port, host));
    const outcomes = await Promise.allSettled(servers.map((server) => once(server, "listening")));
    await Promise.all(servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve()))));
    if (outcomes.every(({ status }) => status === "fulfilled")) return port;
  }
  throw new Error("no port is free");
}

/** Holds the port of the same number for UDP, which nothing else uses, as long as this process runs. */
async function reserve(port: number): Promise<boolean> {
  const socket = createSocket("udp4").unref().bind(port, "127.0.0.1");
  return once(socket, "listening").then(
    () => true,
    () => false,
  );
}
