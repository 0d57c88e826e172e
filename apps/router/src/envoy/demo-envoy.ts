import { isIP } from "node:net";
import { plainHost } from "@espalier/core";
import { type Command, Option } from "commander";
import { readNumber, UsageError } from "../cli/read-flags.ts";
import { writeNote } from "../output.ts";
import type { RouterListening } from "../processes/start-child.ts";
import { type EnvoyAddress, type EnvoyPicker, envoyConfig, standardEnvoyLimits } from "./envoy-config.ts";
import { envoyVersion, installEnvoy } from "./install-envoy.ts";
import { type EnvoyProcess, startEnvoy } from "./start-envoy.ts";

/** The flags of `espalier demo` for its Envoy as they were written. */
export interface DemoEnvoyFlags {
  readonly envoy?: boolean;
  readonly envoyPort: string;
  readonly envoyBin?: string;
  readonly envoyCache?: string;
}

/** The Envoy of a demo. */
export interface DemoEnvoyOptions {
  /** 0 for a free port. */
  readonly port: number;
  /** An installed program; undefined to install one. */
  readonly program: string | undefined;
  readonly cacheFolder: string | undefined;
}

const host = "127.0.0.1";

/** Adds the flags under their heading. */
export function addEnvoyFlags(command: Command): Command {
  return command
    .optionsGroup("Gateway:")
    .option(
      "--envoy",
      `also start the real Envoy, which asks the routers where each request goes (installs Envoy ${envoyVersion} once, with Python's pip)`,
    )
    .option("--envoy-port <port>", "where it listens; 0 for a free port", "10000")
    .addOption(new Option("--envoy-bin <file>", "an Envoy that is installed already").env("ENVOY_BIN"))
    .addOption(
      new Option("--envoy-cache <folder>", "install it below this folder, not ~/.cache").env("XDG_CACHE_HOME"),
    );
}

/**
 * @returns undefined for a demo without Envoy
 * @throws UsageError for a port that is none, or engines that Envoy cannot be given
 */
export function readEnvoyFlags(
  flags: DemoEnvoyFlags,
  engineUrls: readonly string[] | undefined,
): DemoEnvoyOptions | undefined {
  const port = readNumber(flags.envoyPort, "--envoy-port", { min: 0, max: 65_535, integer: true });
  if (!flags.envoy) return undefined;
  for (const url of engineUrls ?? []) engineAddress(url);
  return { port, program: flags.envoyBin, cacheFolder: flags.envoyCache };
}

/** The program, installed if need be. It says so on standard error. @param signal aborts it */
export async function demoEnvoyProgram(options: DemoEnvoyOptions, signal: AbortSignal): Promise<string> {
  return options.program ?? installEnvoy({ cacheFolder: options.cacheFolder, note: writeNote, signal });
}

interface DemoEnvoyFleet {
  readonly program: string;
  readonly port: number;
  /** Endpoint pickers. */
  readonly routers: readonly RouterListening[];
  readonly engineUrls: readonly string[];
  /** Aborts the start. */
  readonly signal: AbortSignal;
}

/** Starts Envoy before routers. */
export function startDemoEnvoy({ program, port, routers, engineUrls, signal }: DemoEnvoyFleet): Promise<EnvoyProcess> {
  const config = envoyConfig({
    listen: { host, port },
    admin: { host, port: 0 },
    pickers: routers.map(pickerOf),
    engines: engineUrls.map(engineAddress),
    requestBody: "full-duplex",
    answersThroughPicker: true,
    limits: standardEnvoyLimits,
  });
  return startEnvoy({ program, config, signal });
}

/**
 * A router that was started as an endpoint picker, as Envoy has to know it.
 *
 * @throws Error for another router
 */
export function pickerOf({ url, picker }: Pick<RouterListening, "url" | "picker">): EnvoyPicker {
  if (!picker) throw new Error(`endpoint-picker is off at the router ${url}`);
  const [at, healthAt] = [picker.address, picker.healthAddress].map((address) => new URL(`grpc://${address}`)) as [
    URL,
    URL,
  ];
  return { host: plainHost(at.hostname), port: Number(at.port), healthPort: Number(healthAt.port) };
}

const standardPort = 80;

/** @throws UsageError for an engine that is not at `http://IP:PORT` */
function engineAddress(text: string): EnvoyAddress {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const name = plainHost(url?.hostname ?? "");
  // Routers name engines by IP address and port, and Envoy has to know the same.
  if (url?.protocol !== "http:" || url.pathname !== "/" || isIP(name) === 0) {
    throw new UsageError(`--envoy needs engines like http://10.0.0.1:8000, by IP address, not ${JSON.stringify(text)}`);
  }
  return { host: name, port: Number(url.port || standardPort) };
}
