import { maxLocalEngines, maxLocalRouters } from "../local-fleet/local-fleet.ts";
import type { Sharing } from "../local-fleet/start-routers.ts";
import { readCount, readDurationMs, readNumber, UsageError } from "../output/usage-error.ts";

/** The flags of `espalier demo` as they were written. */
export interface DemoFlags {
  readonly engine?: readonly string[];
  readonly engines: string;
  readonly routers: string;
  readonly sharing: Sharing;
  readonly policy: string;
  readonly preset: string;
  readonly model?: string;
  readonly port: string;
  readonly adminPort: string;
  readonly load: string;
  readonly duration?: string;
}

/** What `espalier demo` is to do. */
export interface DemoOptions {
  /** Engines that run already, in place of simulated ones. */
  readonly engineUrls: readonly string[] | undefined;
  readonly engines: number;
  readonly routers: number;
  readonly sharing: Sharing;
  readonly policy: string;
  readonly preset: string;
  /** Undefined for whatever the engines serve. */
  readonly model: string | undefined;
  /** Ports of the first one of each; 0 for free ones. */
  readonly port: number;
  readonly adminPort: number;
  readonly enginePort: number;
  readonly requestsPerSecond: number;
  /** Undefined for no end. */
  readonly durationMs: number | undefined;
}

const enginePortOffset = 1_000;
const portCount = 65_536;
const maxRequestsPerSecond = 10_000;

/**
 * Checks every flag before anything is started.
 *
 * @throws UsageError naming the flag at fault
 */
export function readDemoOptions(flags: DemoFlags): DemoOptions {
  const port = readPort(flags.port, "--port");
  const adminPort = readPort(flags.adminPort, "--admin-port");
  const engines = readCount(flags.engines, "--engines", maxLocalEngines);
  const routers = readCount(flags.routers, "--routers", maxLocalRouters);
  const enginePort = port === 0 ? 0 : port + enginePortOffset;
  // Engines of the user's own have their own ports.
  if (flags.engine === undefined && enginePort + engines > portCount) {
    throw new UsageError("--port leaves no room for the engines, 1000 above it");
  }
  if (port + routers > portCount) throw new UsageError("--port leaves no room for the routers");
  if (adminPort + routers > portCount) throw new UsageError("--admin-port leaves no room for the routers");
  return {
    engineUrls: flags.engine,
    engines,
    routers,
    sharing: flags.sharing,
    policy: flags.policy,
    preset: flags.preset,
    model: flags.model,
    port,
    adminPort,
    enginePort,
    requestsPerSecond: readNumber(flags.load, "--load", { min: 0, max: maxRequestsPerSecond }),
    durationMs: flags.duration === undefined ? undefined : readDurationMs(flags.duration, "--duration"),
  };
}

function readPort(text: string, name: string): number {
  return readNumber(text, name, { min: 0, max: 65_535, integer: true });
}
