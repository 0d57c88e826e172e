import { percentile } from "@espalier/workload";
import type { Measurement } from "../support/measure-load.ts";
import type { Figures } from "../support/median-spread.ts";
import { type ProxyLoads, streamTokens } from "./proxy-loads.ts";

/** The loads that every system gets. */
export type LoadName = Exclude<keyof ProxyLoads, "growth" | "turns">;

/** What was measured of one system. */
export type Measured = Readonly<Record<LoadName, Measurement>>;

/** In the order in which they are sent. */
export const loadNames: readonly LoadName[] = ["small", "large", "flood", "paced", "steady"];

/** First bytes and latencies are those beyond what a client of the engine itself sees. */
export function figuresOf({ small, large, flood, paced, steady }: Measured, direct: Measured): Figures {
  return {
    rps_4k: small.requestsPerSecond,
    cpu_us_4k: small.cpuMicrosPerRequest,
    rps_48k: large.requestsPerSecond,
    cpu_us_48k: large.cpuMicrosPerRequest,
    rps_sse: flood.requestsPerSecond,
    cpu_us_sse: paced.cpuMicrosPerRequest,
    cpu_us_per_chunk: paced.cpuMicrosPerRequest / streamTokens,
    cpu_us_per_chunk_flood: flood.cpuMicrosPerRequest / streamTokens,
    first_byte_p50_ms: percentile(paced.firstByteMs, 50) - percentile(direct.paced.firstByteMs, 50),
    first_byte_p99_ms: percentile(paced.firstByteMs, 99) - percentile(direct.paced.firstByteMs, 99),
    added_48k_300rps_p50_ms: percentile(steady.totalMs, 50) - percentile(direct.steady.totalMs, 50),
    added_48k_300rps_p99_ms: percentile(steady.totalMs, 99) - percentile(direct.steady.totalMs, 99),
  };
}

/** What a client sees that asks the engine itself. */
export function directFigures({ small, large, flood, paced, steady }: Measured): Figures {
  return {
    rps_4k: small.requestsPerSecond,
    rps_48k: large.requestsPerSecond,
    rps_sse: flood.requestsPerSecond,
    first_byte_p50_ms: percentile(paced.firstByteMs, 50),
    first_byte_p99_ms: percentile(paced.firstByteMs, 99),
    latency_48k_300rps_p50_ms: percentile(steady.totalMs, 50),
    latency_48k_300rps_p99_ms: percentile(steady.totalMs, 99),
  };
}
