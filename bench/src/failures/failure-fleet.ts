import { type Child, type RouterListening, untilReady } from "espalier-router";
import {
  type EngineProcess,
  endBy,
  FleetProcesses,
  type FleetProcessesOptions,
  started,
} from "../support/fleet-processes.ts";
import { freePorts } from "../support/free-ports.ts";
import type { WaitPorts } from "../support/until.ts";
import { untilKnown } from "../support/until-known.ts";

export interface FailureFleetOptions extends Omit<FleetProcessesOptions, "startTimeoutMs"> {
  readonly engines: number;
  readonly routers: number;
  readonly ports: WaitPorts;
}

/** Simulated engines with KV events and a mesh of routers. Each is a process, and all use the shipped tokenizer. */
export interface FailureFleet {
  /** Where clients reach the routers; unchanged by a restart, like the addresses of a DNS name. */
  readonly urls: readonly string[];
  /** The routers' names for the engines. */
  readonly engineIds: readonly string[];
  /**
   * Ends a router with SIGTERM and waits until it has drained. Then starts it again at its address, and waits until it
   * is ready and linked with the others.
   *
   * @throws Error when it does not exit with 0, or does not become ready
   */
  restartRouter(router: number): Promise<void>;
  /** Number of engine feeds that are not live, summed over all routers' views. */
  feedsNotLive(): Promise<number>;
  /** Ends an engine with SIGKILL, and resolves when it is gone. */
  killEngine(engine: number): Promise<void>;
  stop(): Promise<void>;
}

const startTimeoutMs = 60_000;

/**
 * Starts a fleet and waits until every router can use every engine, knows every feed and is linked with the others.
 *
 * @throws Error when something does not start, or does not find the others
 */
export async function startFailureFleet(options: FailureFleetOptions): Promise<FailureFleet> {
  return started(new ProcessFleet(options, await freePorts(options.routers)));
}

class ProcessFleet implements FailureFleet {
  readonly #options: FailureFleetOptions;
  readonly #processes: FleetProcesses;
  readonly #routerPorts: readonly number[];
  readonly #engines: EngineProcess[] = [];
  readonly #routers: Child<RouterListening>[] = [];

  constructor(options: FailureFleetOptions, routerPorts: readonly number[]) {
    this.#options = options;
    this.#processes = new FleetProcesses({ ...options, startTimeoutMs });
    this.#routerPorts = routerPorts;
  }

  get urls(): readonly string[] {
    return this.#routers.map(({ listening }) => listening.url);
  }

  get engineIds(): readonly string[] {
    return this.#engines.map(({ id }) => id);
  }

  async start(): Promise<void> {
    const { engines, routers } = this.#options;
    for (let index = 0; index < engines; index++) this.#engines.push(await this.#processes.startEngine());
    for (let index = 0; index < routers; index++) this.#routers.push(await this.#startRouter(index));
    for (const router of this.#routers) await this.#untilLinked(router, engines);
  }

  async restartRouter(index: number): Promise<void> {
    const router = this.#routers[index];
    if (!router) throw new RangeError(`unknown router ${index}`);
    const code = await endBy("SIGTERM", router);
    if (code !== 0) throw new Error(`router ${index + 1} ended with ${code} after SIGTERM`);
    const again = await this.#startRouter(index);
    this.#routers[index] = again;
    // Waits for the router's readiness, as an operator does.
    await this.#untilLinked(again, 0);
  }

  async feedsNotLive(): Promise<number> {
    let live = 0;
    for (const { listening } of this.#routers) {
      const page = (await (await fetch(`${listening.adminUrl}/admin/feeds`)).json()) as FeedsPage;
      live += page.feeds.filter(({ state }) => state === "live").length;
    }
    return this.#routers.length * this.#engines.length - live;
  }

  async killEngine(index: number): Promise<void> {
    const engine = this.#engines[index];
    if (!engine) throw new RangeError(`unknown engine ${index}`);
    await endBy("SIGKILL", engine.child);
  }

  stop(): Promise<void> {
    return this.#processes.stop();
  }

  #startRouter(index: number): Promise<Child<RouterListening>> {
    const others = this.#routers.filter((_, other) => other !== index);
    const engineUrls = this.#engines.map(({ url }) => url);
    return this.#processes.startRouter(`router-${index + 1}`, others, { engineUrls, port: this.#routerPorts[index]! });
  }

  /** @param feeds that must be live too */
  async #untilLinked({ listening }: Child<RouterListening>, feeds: number): Promise<void> {
    const { engines, routers, ports } = this.#options;
    await untilReady(listening, engines);
    await untilKnown(listening.adminUrl, { members: routers - 1, feeds }, ports);
  }
}

interface FeedsPage {
  readonly feeds: readonly { readonly state: string }[];
}
