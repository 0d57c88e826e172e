import {
  type Child,
  type EnvoyConfig,
  type EnvoyOptions,
  type EnvoyPicker,
  envoyConfig,
  pickerOf,
  type RequestBodyMode,
  type RouterListening,
  standardEnvoyLimits,
  startEnvoy,
  startLocalRouter,
  untilReady,
} from "espalier-router";
import type { ContenderPorts } from "../data-path/contenders.ts";
import type { System } from "../data-path/measure-load.ts";
import { cacheAware } from "../peers/products.ts";
import { type CorePlan, pinProcess } from "../support/cpu-pinning.ts";
import { routerProgram } from "../support/router-program.ts";
import type { AskedPicker } from "./gateway-load.ts";
import { startLlmdPicker } from "./llmd-picker.ts";

/** Between client and engines: something that speaks HTTP, or a picker that is asked without a gateway. */
export type Running = { readonly system: System & { readonly pid: number } } | { readonly alone: AskedPicker };

interface RunningArrangement {
  readonly running: Running;
  stop(): Promise<void>;
}

/** One path of requests to engines. */
export interface Arrangement {
  /** For `--only`, notes and tables. */
  readonly name: string;
  /** Whose figures these are: `espalier`, or a name in `baselines`. */
  readonly owner: string;
  /** Ends the names of its figures; empty where the owner has this one, or it is the usual one. */
  readonly suffix: string;
  /** Whether the process of `system` is Envoy, and not what answers by itself. */
  readonly isEnvoy: boolean;
  start(engineUrls: readonly string[]): Promise<RunningArrangement>;
}

export interface ArrangementPorts extends ContenderPorts {
  /** Envoy's program. */
  readonly envoy: string;
  /** llm-d's picker; undefined leaves its arrangements out. */
  readonly llmd: string | undefined;
}

interface Asked {
  readonly requestBody: RequestBodyMode;
  readonly answersThroughPicker: boolean;
}

interface RunningEndpointPicker extends AskedPicker {
  readonly envoyPicker: EnvoyPicker;
  stop(): Promise<void>;
}

type StartPicker = (engineUrls: readonly string[]) => Promise<RunningEndpointPicker>;

const host = "127.0.0.1";
const everything: Asked = { requestBody: "full-duplex", answersThroughPicker: true };
/** By the end of their names. */
const modes: Readonly<Record<string, Asked>> = {
  "": everything,
  "answers-hidden": { requestBody: "full-duplex", answersThroughPicker: false },
  buffered: { requestBody: "buffered", answersThroughPicker: false },
  "headers-only": { requestBody: "none", answersThroughPicker: false },
};
/** llm-d's picker reads bodies only where they are streamed. */
const llmdModes = ["", "answers-hidden"];

export const arrangementNames: readonly string[] = [
  ...["proxy", "envoy", ...Object.keys(modes).map((mode) => joined("picker", mode)), "picker-alone"],
  ...[...llmdModes.map((mode) => joined("llm-d", mode)), "llm-d-alone"],
];

export function arrangements(ports: ArrangementPorts): readonly Arrangement[] {
  const { llmd } = ports;
  const own = (urls: readonly string[]) => startOwnPicker(urls, ports);
  const all = [
    proxyArrangement(ports),
    envoyArrangement(ports),
    ...Object.keys(modes).map((mode) => pickerArrangement("picker", "espalier", mode, own, ports)),
    aloneArrangement("picker", "espalier", own),
  ];
  if (llmd === undefined) return all;
  const peer = (urls: readonly string[]) => startPeerPicker(llmd, urls, ports);
  return [
    ...all,
    ...llmdModes.map((mode) => pickerArrangement("llm-d", "llm-d", mode, peer, ports)),
    aloneArrangement("llm-d", "llm-d", peer),
  ];
}

/** The router as a proxy. */
function proxyArrangement({ plan }: ContenderPorts): Arrangement {
  return {
    ...{ name: "proxy", owner: "proxy", suffix: "", isEnvoy: false },
    async start(engineUrls) {
      const router = await startPinnedRouter(engineUrls, plan, false);
      const { process, listening, stop } = router;
      return { running: { system: { name: "proxy", urls: [listening.url], pid: process.pid ?? 0 } }, stop };
    },
  };
}

/** Envoy with the same configuration, except that it asks nobody and takes engines in turn. */
function envoyArrangement(ports: ArrangementPorts): Arrangement {
  return {
    ...{ name: "envoy", owner: "envoy", suffix: "", isEnvoy: true },
    async start(engineUrls) {
      const config = withoutPicker(envoyConfig(envoyOptions(engineUrls, { host, port: 9, healthPort: 9 }, everything)));
      const envoy = await startPinnedEnvoy(config, ports);
      return { running: { system: { ...envoy.system, name: "envoy" } }, stop: envoy.stop };
    },
  };
}

function pickerArrangement(
  name: string,
  owner: string,
  mode: string,
  startPicker: StartPicker,
  ports: ArrangementPorts,
): Arrangement {
  return {
    ...{ name: joined(name, mode), owner, suffix: suffixOf(mode), isEnvoy: true },
    async start(engineUrls) {
      const picker = await startPicker(engineUrls);
      try {
        const config = envoyConfig(envoyOptions(engineUrls, picker.envoyPicker, modes[mode]!));
        const envoy = await startPinnedEnvoy(config, ports);
        const system = { ...envoy.system, name: joined(name, mode), besides: { picker: picker.pid } };
        const stop = async (): Promise<void> => void (await Promise.all([envoy.stop(), picker.stop()]));
        return { running: { system }, stop };
      } catch (thrown) {
        await picker.stop();
        throw thrown;
      }
    },
  };
}

function aloneArrangement(name: string, owner: string, startPicker: StartPicker): Arrangement {
  return {
    ...{ name: joined(name, "alone"), owner, suffix: suffixOf("alone"), isEnvoy: false },
    async start(engineUrls) {
      const picker = await startPicker(engineUrls);
      return { running: { alone: picker }, stop: picker.stop };
    },
  };
}

/** `espalier serve`, of which only the endpoint picker is used. */
async function startOwnPicker(engineUrls: readonly string[], { plan }: ContenderPorts): Promise<RunningEndpointPicker> {
  const { process, listening, stop } = await startPinnedRouter(engineUrls, plan, true);
  const envoyPicker = pickerOf(listening);
  return { pid: process.pid ?? 0, envoyPicker, address: `${envoyPicker.host}:${envoyPicker.port}`, stop };
}

/**
 * `espalier serve` that holds no request back. Engines that answer at once are not what its admission reckons with: where a
 * gateway hides answers, it counts each prompt as pending until the next scrape of metrics.
 */
async function startPinnedRouter(
  engineUrls: readonly string[],
  plan: CorePlan | undefined,
  isPicker: boolean,
): Promise<Child<RouterListening>> {
  const flags = ["--log-level", "warn", "--admission-mode", "off"];
  const more = { policy: cacheAware, port: 0, adminPort: 0, isPicker, arguments: flags };
  const router = await startLocalRouter({ engineUrls, runBy: routerProgram, ...more });
  try {
    if (plan) pinProcess(router.process.pid ?? 0, plan.router);
    await untilReady(router.listening, engineUrls.length);
    return router;
  } catch (thrown) {
    await router.stop();
    throw thrown;
  }
}

async function startPeerPicker(
  program: string,
  engineUrls: readonly string[],
  ports: ContenderPorts,
): Promise<RunningEndpointPicker> {
  const { port, healthPort, pid, stop } = await startLlmdPicker({ program, engineUrls, plan: ports.plan }, ports);
  return { pid, address: `${host}:${port}`, envoyPicker: { host, port, healthPort }, stop };
}

export function envoyOptions(engineUrls: readonly string[], picker: EnvoyPicker, asked: Asked): EnvoyOptions {
  return {
    listen: { host, port: 0 },
    admin: { host, port: 0 },
    pickers: [picker],
    engines: engineUrls.map((url) => ({ host, port: Number(new URL(url).port) })),
    ...asked,
    limits: standardEnvoyLimits,
  };
}

const pickerParts: ReadonlySet<unknown> = new Set(["pickers", "envoy.filters.http.ext_proc"]);

/** The configuration without the filter that asks pickers, and without their cluster. */
export function withoutPicker(config: EnvoyConfig): EnvoyConfig {
  const keep = (_key: string, value: unknown): unknown =>
    Array.isArray(value) ? value.filter((part) => !pickerParts.has(part?.name)) : value;
  return JSON.parse(JSON.stringify(config), keep) as EnvoyConfig;
}

/** Envoy with one thread, on the core of the measured programs. */
async function startPinnedEnvoy(config: EnvoyConfig, { envoy: program, plan }: ArrangementPorts) {
  const envoy = await startEnvoy({ program, config, threads: 1 });
  const { pid = 0 } = envoy.process;
  if (plan) pinProcess(pid, plan.router);
  return { system: { urls: [envoy.listening.url], pid }, stop: envoy.stop };
}

function joined(name: string, mode: string): string {
  return mode === "" ? name : `${name}-${mode}`;
}

function suffixOf(mode: string): string {
  return mode === "" ? "" : `_${mode.replace("-", "_")}`;
}
