import { shippedModelFolder } from "@espalier/tokenizer";
import { envoyConfig, installedEnvoy, type LocalEnginesOptions, startEnvoy, startLocalEngines } from "espalier-router";
import { installPeer } from "../peers/install-peer.ts";
import { cacheAware, products, roundRobin } from "../peers/products.ts";
import { startPeer } from "../peers/start-peer.ts";
import { envoyOptions } from "../pickers/arrangements.ts";
import { buildGoProgram } from "../pickers/build-go-program.ts";
import { llmdSource, startLlmdPicker } from "../pickers/llmd-picker.ts";
import { benchModel } from "../support/bench-model.ts";
import { startMeshFleet } from "../support/mesh-fleet.ts";
import type { WaitPorts } from "../support/until.ts";
import { spreadConnections } from "./spread-connections.ts";

/** Routers in front of engines that have just started. */
export interface ComparedFleet {
  /** Where a load generator sends. */
  readonly url: string;
  readonly engineUrls: readonly string[];
  stop(): Promise<void>;
}

export interface ComparedSystem {
  readonly name: string;
  /** @throws Error when a part does not start */
  start(ports: WaitPorts): Promise<ComparedFleet>;
}

export interface FleetSizes {
  readonly engines: number;
  readonly preset: string;
  /** Engine seconds per real second. */
  readonly speed: number;
}

/** Where programs are installed, once. */
export interface ProgramFolders {
  readonly peers: string;
  readonly pickers: string;
}

/** The name of our routers where there are several. */
const ownName = "espalier";
export const ownPolicy = "predicted_latency";
/** Routers of our own fleets: those of the guide's commands, and a third of the systems compared. */
export const severalRouters = 3;

type Prepare = (
  sizes: FleetSizes,
  folders: ProgramFolders,
  note: (line: string) => void,
) => Promise<ComparedSystem["start"]>;

const host = "127.0.0.1";
/** A busy machine is no failure. */
const startTimeoutMs = 120_000;

/** Each router as its authors recommend it for engines without KV events, except ours, which reads them. */
const systems: Readonly<Record<string, Prepare>> = {
  [ownName]: async (sizes) => (ports) => startOwn(sizes, 1, ownPolicy, ports),
  [`${ownName}-${severalRouters}`]: async (sizes) => (ports) => startOwn(sizes, severalRouters, ownPolicy, ports),
  "sglang-router": peer("sglang-router", cacheAware),
  smg: peer("smg", cacheAware),
  "vllm-router": peer("vllm-router", cacheAware),
  "llm-d": async (sizes, { pickers: folder }, note) => {
    const program = await buildGoProgram(llmdSource, { folder, note });
    const envoy = installedEnvoy();
    if (envoy === undefined) throw new Error("Envoy is not installed (npm run envoy:install)");
    return (ports) =>
      besideEngines(sizes, false, async (engineUrls) => {
        const picker = await startLlmdPicker({ program, engineUrls, plan: undefined }, ports);
        const asked = { requestBody: "full-duplex", answersThroughPicker: true } as const;
        try {
          const config = envoyConfig(envoyOptions(engineUrls, { host, ...picker }, asked));
          const gateway = await startEnvoy({ program: envoy, config, threads: 1 });
          const stop = async (): Promise<void> => void (await Promise.all([gateway.stop(), picker.stop()]));
          return { url: gateway.listening.url, stop };
        } catch (thrown) {
          await picker.stop();
          throw thrown;
        }
      });
  },
  [roundRobin]: async (sizes) => (ports) => startOwn(sizes, 1, roundRobin, ports),
};

export const systemNames: readonly string[] = Object.keys(systems);

/**
 * Installs what a system needs.
 *
 * @throws Error saying what is missing
 */
export async function prepareSystem(
  name: string,
  sizes: FleetSizes,
  folders: ProgramFolders,
  note: (line: string) => void,
): Promise<ComparedSystem> {
  return { name, start: await systems[name]!(sizes, folders, note) };
}

/** Our routers in a mesh, at one address. */
export async function startOwn(
  sizes: FleetSizes,
  routers: number,
  policy: string,
  ports: WaitPorts,
): Promise<ComparedFleet> {
  const sharing = routers > 1 ? "mesh" : "none";
  const fleet = await startMeshFleet({ engines: enginesOf(sizes, true), routers, sharing, policy }, ports);
  const address = await spreadConnections(fleet.routers.map(({ url }) => url));
  const stop = async (): Promise<void> => {
    await address.stop();
    await fleet.stop();
  };
  return { url: address.url, engineUrls: fleet.engineUrls, stop };
}

function peer(name: string, policy: string): Prepare {
  return async (sizes, { peers }, note) => {
    const installed = await installPeer(products.find((each) => each.name === name)!, peers, note);
    return (ports) =>
      besideEngines(sizes, false, (engineUrls) => startPeer(installed, { engineUrls, policy, plan: undefined }, ports));
  };
}

async function besideEngines(
  sizes: FleetSizes,
  kvEvents: boolean,
  startRouter: (engineUrls: readonly string[]) => Promise<{ readonly url: string; stop(): Promise<void> }>,
): Promise<ComparedFleet> {
  const engines = await startLocalEngines(enginesOf(sizes, kvEvents));
  const engineUrls = engines.listening.engines.map(({ url }) => url);
  try {
    const router = await startRouter(engineUrls);
    const stop = async (): Promise<void> => void (await Promise.all([router.stop(), engines.stop()]));
    return { url: router.url, engineUrls, stop };
  } catch (thrown) {
    await engines.stop();
    throw thrown;
  }
}

function enginesOf({ engines, preset, speed }: FleetSizes, kvEvents: boolean): LocalEnginesOptions {
  const served = { model: benchModel, tokenizer: shippedModelFolder() };
  return { count: engines, preset, speed, port: 0, kvEvents, ...served, startTimeoutMs };
}
