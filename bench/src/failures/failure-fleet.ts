import { shippedModelFolder } from "@espalier/tokenizer";
import {
  type Child,
  type EnginesListening,
  type RouterListening,
  startLocalEngines,
  startLocalRouter,
  untilReady,
} from "espalier";
import { benchModel } from "../support/bench-model.ts";
import { freePorts } from "../support/free-ports.ts";
import { routerProgram } from "../support/router-program.ts";
import type { WaitPorts } from "../support/until.ts";
import { untilKnown } from "../support/until-known.ts";

export interface FailureFleetOptions {
  readonly engines: number;
  readonly routers: number;
  readonly preset: string;
  /** Engine seconds per real second. */
  readonly speed: number;
  /** KV blocks per engine; the preset's when absent. */
  readonly blocks?: number;
  /** Settings of every router, in addition to those that connect the fleet. */
  readonly arguments: readonly string[];
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

/** How long a process may take to start: a busy machine is no failure. */
const startTimeoutMs = 60_000;

/**
 * Starts a fleet and waits until every router can use every engine, knows every feed and is linked with the others.
 *
 * @throws Error when something does not start, or does not find the others
 */
export async function startFailureFleet(options: FailureFleetOptions): Promise<FailureFleet> {
  const fleet = new ProcessFleet(options, await freePorts(options.routers));
  try {
    await fleet.start();
  } catch (thrown) {
    await fleet.stop();
    throw thrown;
  }
  return fleet;
}

class ProcessFleet implements FailureFleet {
  readonly #options: FailureFleetOptions;
  readonly #routerPorts: readonly number[];
  readonly #engines: Child<EnginesListening>[] = [];
  readonly #routers: Child<RouterListening>[] = [];

  constructor(options: FailureFleetOptions, routerPorts: readonly number[]) {
    this.#options = options;
    this.#routerPorts = routerPorts;
  }

  get urls(): readonly string[] {
    return this.#routers.map(({ listening }) => listening.url);
  }

  get engineIds(): readonly string[] {
    return this.#engineUrls.map((url) => new URL(url).host);
  }

  async start(): Promise<void> {
    const { engines, routers, preset, speed, blocks } = this.#options;
    for (let index = 0; index < engines; index++) {
      this.#engines.push(
        await startLocalEngines({
          ...{ count: 1, preset, model: benchModel, speed, port: 0, kvEvents: true, startTimeoutMs },
          ...(blocks === undefined ? {} : { blocks }),
          tokenizer: shippedModelFolder(),
        }),
      );
    }
    for (let index = 0; index < routers; index++) this.#routers.push(await this.#startRouter(index));
    for (const router of this.#routers) await this.#untilLinked(router, engines);
  }

  async restartRouter(index: number): Promise<void> {
    const router = this.#routers[index];
    if (!router) throw new RangeError(`there is no router ${index}`);
    router.process.kill("SIGTERM");
    const code = await router.exited;
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
    if (!engine) throw new RangeError(`there is no engine ${index}`);
    engine.process.kill("SIGKILL");
    await engine.exited;
  }

  async stop(): Promise<void> {
    const children: readonly Child<unknown>[] = [...this.#routers.splice(0), ...this.#engines.splice(0)];
    await Promise.all(children.map((child) => child.stop()));
  }

  get #engineUrls(): readonly string[] {
    return this.#engines.flatMap(({ listening }) => listening.engines.map(({ url }) => url));
  }

  #startRouter(index: number): Promise<Child<RouterListening>> {
    const others = this.#routers.filter((_, other) => other !== index);
    return startLocalRouter({
      ...{ engineUrls: this.#engineUrls, port: this.#routerPorts[index]!, adminPort: 0, startTimeoutMs },
      tokenizer: shippedModelFolder(),
      mesh: {
        routerId: `router-${index + 1}`,
        seeds: others.flatMap(({ listening }) => listening.meshAddress ?? []),
      },
      arguments: ["--log-level", "error", ...this.#options.arguments],
      runBy: routerProgram,
    });
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
