import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readTreeUsage } from "../support/process-tree.ts";
import { compileNative, startNative } from "./native-program.ts";
import type { PreparedRequest } from "./prepared-request.ts";

/** Something that answers requests. */
export interface System {
  readonly name: string;
  /** Its URL; several for engines that are asked without a router. */
  readonly urls: readonly string[];
  /** Its process and all descendants; absent for a system without one. */
  readonly pid?: number;
  /** Further processes that requests keep busy, each measured by itself. */
  readonly besides?: Readonly<Record<string, number>>;
}

/**
 * How requests are sent: a number at a time, a number per second at random times, or a number at once, repeated when
 * all have ended.
 */
export type Pace =
  | { readonly kind: "closed"; readonly concurrency: number }
  | { readonly kind: "open"; readonly ratePerSecond: number; readonly seed: number }
  | { readonly kind: "burst"; readonly streams: number };

/** When sending ends. */
export type Extent = { readonly durationMs: number } | { readonly requests: number };

export interface Load {
  readonly request: PreparedRequest;
  readonly pace: Pace;
  /** Requests sent first and not measured. Absent for a cold measurement. */
  readonly warmUp?: Extent;
  readonly extent: Extent;
}

/** Shares of one core, 0 to 1. */
export interface CoreShares {
  readonly system: number;
  readonly load: number;
  readonly engine: number;
}

export interface Measurement {
  readonly requests: number;
  readonly requestsPerSecond: number;
  /** CPU time of the system's process per request; NaN when it has no process. */
  readonly cpuMicrosPerRequest: number;
  /** The same of each process besides, by its name. */
  readonly cpuMicrosBesides: Readonly<Record<string, number>>;
  /** Memory growth of the system's process; NaN when it has none. */
  readonly residentGrowthBytes: number;
  /** Ascending. */
  readonly totalMs: Float64Array;
  /** Ascending. */
  readonly firstByteMs: Float64Array;
  readonly shares: CoreShares;
}

const nothing: Extent = { requests: 0 };
/** Prompt numbers across all loads of this process, so that no two prompts are equal. */
let nextSerial = 1;
/** More than any load sends. */
const serialsPerLoad = 10_000_000;
const bytesPerTiming = 16;

/**
 * Sends a load to a system, and measures what the client sees and what the processes use. The load generator is a
 * separate process, `load.c`.
 *
 * @throws Error when a request fails or does not end
 */
export async function measureLoad(system: System, load: Load, enginePid: number): Promise<Measurement> {
  const program = await compileNative("load");
  const folder = mkdtempSync(join(tmpdir(), "espalier-bench-load-"));
  try {
    const file = join(folder, "request");
    writeFileSync(file, load.request.bytes);
    const running = startNative("load", program, argumentsOf(system, load, file));
    await running.line();
    const before = readUsages(system, enginePid);
    running.process.stdin?.end("\n");
    const output = await running.rest();
    return summarize(output, before, readUsages(system, enginePid));
  } catch (thrown) {
    const reason = thrown instanceof Error ? thrown.message : String(thrown);
    throw new Error(`a request to ${system.name} failed: ${reason}`, { cause: thrown });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function argumentsOf({ urls }: System, { request, pace, warmUp = nothing, extent }: Load, file: string): string[] {
  const serial = nextSerial;
  nextSerial += serialsPerLoad;
  const limits = (given: Extent): string[] =>
    "requests" in given ? [String(given.requests), "0"] : ["0", String(Math.round(given.durationMs))];
  return [
    urls.map((url) => new URL(url).port).join(","),
    ...[file, String(request.serialAt), String(serial), paceArgument(pace)],
    ...limits(warmUp),
    ...limits(extent),
  ];
}

function paceArgument(pace: Pace): string {
  if (pace.kind === "closed") return `closed:${pace.concurrency}`;
  return pace.kind === "open" ? `open:${pace.ratePerSecond}:${pace.seed}` : `burst:${pace.streams}`;
}

/** CPU seconds so far, and memory, of the system. */
interface Usages {
  readonly system: number;
  readonly residentBytes: number;
  readonly engine: number;
  readonly besides: Readonly<Record<string, number>>;
}

function readUsages({ pid, besides = {} }: System, enginePid: number): Usages {
  const own = pid === undefined ? undefined : readTreeUsage(pid);
  return {
    system: own?.cpuSeconds ?? Number.NaN,
    residentBytes: own?.residentBytes ?? Number.NaN,
    engine: readTreeUsage(enginePid).cpuSeconds,
    besides: Object.fromEntries(Object.entries(besides).map(([name, each]) => [name, readTreeUsage(each).cpuSeconds])),
  };
}

/** @param output of `load.c` after its warm-up */
function summarize(output: Buffer, before: Usages, after: Usages): Measurement {
  const lineEnd = output.indexOf("\n");
  const [, requests = 0, elapsedNs = 0, loadCpuNs = 0] = output.toString("latin1", 0, lineEnd).split(" ").map(Number);
  const timings = output.subarray(lineEnd + 1);
  const column = (offset: number): Float64Array =>
    Float64Array.from({ length: requests }, (_, at) => timings.readDoubleLE(at * bytesPerTiming + offset)).sort();
  const elapsedS = elapsedNs / 1e9;
  const spent = (name: "system" | "residentBytes" | "engine"): number => after[name] - before[name];
  const perRequest = (cpuSeconds: number): number => (cpuSeconds * 1e6) / requests;
  return {
    requests,
    requestsPerSecond: requests / elapsedS,
    cpuMicrosPerRequest: perRequest(spent("system")),
    cpuMicrosBesides: Object.fromEntries(
      Object.entries(after.besides).map(([name, cpuSeconds]) => [name, perRequest(cpuSeconds - before.besides[name]!)]),
    ),
    residentGrowthBytes: spent("residentBytes"),
    firstByteMs: column(0),
    totalMs: column(8),
    shares: {
      system: spent("system") / elapsedS,
      load: loadCpuNs / 1e9 / elapsedS,
      engine: spent("engine") / elapsedS,
    },
  };
}
