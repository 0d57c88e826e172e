import { readCount, readDurationMs, readNumber, UsageError } from "../cli/read-flags.ts";
import { type DemoEnvoyFlags, readEnvoyFlags } from "../envoy/demo-envoy.ts";
import { maxLocalEngines, maxLocalRouters } from "../processes/local-fleet.ts";
import type { Sharing } from "../processes/start-routers.ts";
import { pullPreset } from "./demo-pulls.ts";

/** The flags of `espalier demo` as they were written. */
export interface DemoFlags extends DemoEnvoyFlags {
  readonly engine?: readonly string[];
  readonly engines: string;
  readonly routers: string;
  readonly sharing: Sharing;
  readonly policy: string;
  readonly preset?: string;
  readonly kvPull?: boolean;
  readonly model?: string;
  readonly port: string;
  readonly adminPort: string;
  readonly load: string;
  readonly duration?: string;
}

/** The parsed options of `espalier demo`. */
export type DemoOptions = ReturnType<typeof readDemoOptions>;

const enginePortOffset = 1_000;
const portCount = 65_536;
/** Highest rate of `--load`. */
const maxRequestsPerSecond = 10_000;

/**
 * Checks every flag before anything starts.
 *
 * @throws UsageError naming the wrong flag
 */
export function readDemoOptions(flags: DemoFlags) {
  const port = readPort(flags.port, "--port");
  const adminPort = readPort(flags.adminPort, "--admin-port");
  const engines = readCount(flags.engines, "--engines", maxLocalEngines);
  const routers = readCount(flags.routers, "--routers", maxLocalRouters);
  const pulls = flags.kvPull ?? false;
  if (pulls && flags.engine !== undefined) {
    throw new UsageError("--kv-pull is for simulated engines; `kv-pull` in the configuration is for your own");
  }
  const enginePort = port === 0 ? 0 : port + enginePortOffset;
  // The user's own engines have their own ports.
  if (flags.engine === undefined && enginePort + engines > portCount) {
    throw new UsageError("--port leaves no ports for the engines, 1000 above it");
  }
  if (port + routers > portCount) throw new UsageError("--port leaves no ports for the routers");
  if (adminPort + routers > portCount) throw new UsageError("--admin-port leaves no ports for the routers");
  return {
    /** Running engines that replace the simulated ones. */
    engineUrls: flags.engine,
    ...{ engines, routers, sharing: flags.sharing, policy: flags.policy },
    preset: flags.preset ?? (pulls ? pullPreset : "h100-32b-tp2"),
    /** Whether the engines fetch KV blocks from each other. */
    pulls,
    /** Undefined to use whatever the engines serve. */
    model: flags.model,
    /** First port of each kind; 0 for free ones. */
    ...{ port, adminPort, enginePort },
    /** Undefined without Envoy. */
    envoy: readEnvoyFlags(flags, flags.engine),
    requestsPerSecond: readNumber(flags.load, "--load", { min: 0, max: maxRequestsPerSecond }),
    /** Undefined to run without end. */
    durationMs: flags.duration === undefined ? undefined : readDurationMs(flags.duration, "--duration"),
  };
}

function readPort(text: string, name: string): number {
  return readNumber(text, name, { min: 0, max: 65_535, integer: true });
}
