import { type Child, type EnginesListening, startLocalEngines } from "espalier-router";
import { benchModel } from "../support/bench-model.ts";
import { freePorts } from "../support/free-ports.ts";
import { startMeshFleet } from "../support/mesh-fleet.ts";
import { pauseFor, untilNothingMissing, type WaitPorts } from "../support/until.ts";
import { enginePreset } from "../turns/measure-two-turns.ts";
import type { InstalledPeer } from "./install-peer.ts";
import { cacheAware, type PeerCommand, type PeerStart, smgArguments } from "./products.ts";
import { type RunningPeer, startPeer } from "./start-peer.ts";

/** Routers over simulated engines. */
interface TurnFleet {
  readonly urls: readonly string[];
  stop(): Promise<void>;
}

/** A product whose routers can share state. */
export interface MeshProduct {
  readonly name: string;
  /** @throws Error when a part does not start */
  startFleet(options: TurnFleetOptions, ports: WaitPorts): Promise<TurnFleet>;
}

export interface TurnFleetOptions {
  readonly routers: number;
  readonly engines: number;
  /** Engine seconds per real second. */
  readonly speed: number;
  readonly isMesh: boolean;
}

const workersTimeoutMs = 20_000;
/** SMG does not report when its gateways are linked. Its log shows it two seconds after the last one has started. */
const smgSettleMs = 5_000;

/** Our routers, with the policy used for SMG. */
export const ownMeshProduct = (name: string): MeshProduct => ({
  name,
  async startFleet({ routers, isMesh, ...sizes }, ports) {
    const sharing = isMesh ? "mesh" : "none";
    const fleet = await startMeshFleet({ engines: enginesOf(sizes), routers, sharing, policy: cacheAware }, ports);
    return { urls: fleet.routers.map(({ url }) => url), stop: fleet.stop };
  },
});

/** SMG's gateways, each with the addresses of all others. */
export const smgMeshProduct = (peer: InstalledPeer): MeshProduct => ({
  name: peer.product.name,
  async startFleet({ routers, isMesh, ...sizes }, ports) {
    const engines = await startLocalEngines(enginesOf(sizes));
    const gateways: RunningPeer[] = [];
    const stop = async (): Promise<void> => {
      await Promise.all([...gateways.map((gateway) => gateway.stop()), engines.stop()]);
    };
    try {
      const meshPorts = await freePorts(routers);
      for (let index = 0; index < routers; index++) {
        gateways.push(
          await startPeer(
            peer,
            {
              engineUrls: urlsOf(engines),
              policy: cacheAware,
              plan: undefined,
              command: (start) => smgMeshCommand(start, isMesh ? meshPorts : [], index),
            },
            ports,
          ),
        );
      }
      for (const { url } of gateways) await untilWorkers(url, sizes.engines, ports);
      if (isMesh) await pauseFor(smgSettleMs, ports.scheduler);
      return { urls: gateways.map(({ url }) => url), stop };
    } catch (thrown) {
      await stop();
      throw thrown;
    }
  },
});

const enginesOf = ({ engines, speed }: Pick<TurnFleetOptions, "engines" | "speed">) =>
  ({ count: engines, speed, preset: enginePreset, model: benchModel, port: 0, kvEvents: false }) as const;

const urlsOf = ({ listening }: Child<EnginesListening>): readonly string[] => listening.engines.map(({ url }) => url);

/** @param meshPorts of all gateways; none without a mesh */
function smgMeshCommand(start: PeerStart, meshPorts: readonly number[], index: number): PeerCommand {
  const own = meshPorts[index];
  if (own === undefined) return { arguments: smgArguments(start) };
  const others = meshPorts.filter((port) => port !== own).map((port) => `127.0.0.1:${port}`);
  const mesh = ["--enable-mesh", "--mesh-server-name", `gateway-${index + 1}`, "--mesh-host", "127.0.0.1"];
  return { arguments: [...smgArguments(start), ...mesh, "--mesh-port", String(own), "--mesh-peer-urls", ...others] };
}

interface WorkersPage {
  readonly workers?: readonly { readonly status?: string }[];
}

/** Waits until a gateway counts this many of its workers as ready. */
async function untilWorkers(url: string, count: number, ports: WaitPorts): Promise<void> {
  const missing = async (): Promise<string | undefined> => {
    const page = (await (await fetch(`${url}/workers`)).json()) as WorkersPage;
    const ready = page.workers?.filter(({ status }) => status === "ready").length ?? 0;
    return ready < count ? `${ready} of ${count} workers are ready at ${url}` : undefined;
  };
  await untilNothingMissing(missing, workersTimeoutMs, ports);
}
