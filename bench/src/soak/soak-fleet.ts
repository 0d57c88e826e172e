import { type Child, type RouterListening, untilReady } from "espalier-router";
import { type EngineProcess, endBy, FleetProcesses, started } from "../support/fleet-processes.ts";
import { pauseFor, untilNothingMissing, type WaitPorts } from "../support/until.ts";
import { untilKnown } from "../support/until-known.ts";
import type { LoadTarget } from "./soak-load.ts";

export interface SoakFleetOptions {
  readonly engines: number;
  readonly routers: number;
  /** Engine seconds per real second. */
  readonly speed: number;
  readonly ports: WaitPorts;
}

/** A running router, under a name that it keeps across restarts. */
interface SoakRouter extends LoadTarget {
  readonly name: string;
  readonly adminUrl: string;
}

/** Simulated engines and routers, each a process, that are replaced one at a time. */
export interface SoakFleet {
  /** The routers that receive requests from a load balancer. */
  readonly open: readonly SoakRouter[];
  /** Whether the engine with this id was killed. */
  wasEngineKilled(engine: string): boolean;
  /** Drains the oldest engine, waits until its answers have ended, ends it, and adds another one. */
  replaceEngine(): Promise<void>;
  /** Kills the oldest engine, and adds another one. */
  killEngine(): Promise<void>;
  /** Drains the last router and restarts it, as in a rolling restart. */
  restartRouter(): Promise<void>;
  /** Kills the last router and restarts it. */
  killRouter(): Promise<void>;
  stop(): Promise<void>;
}

interface RouterProcess extends SoakRouter {
  readonly child: Child<RouterListening>;
  wasKilled: boolean;
}

/** Few enough that caches turn over continuously, so that engines publish many events. */
const blocksPerEngine = 1_024;
/** Small enough to fill within the first quarter of half an hour, so that later growth is not a filling cache. */
const knownPrompts = "8MiB";
const routerFlags = ["--drain-delay", "1s", "--health-timeout", "10s", "--tokenize-cache", knownPrompts];
/** How long a process may take to start or to find the others: a busy machine is no failure. */
const settleMs = 180_000;

/**
 * Starts a fleet. Engines are added through the admin API, as operators add them, so that the run also covers the state
 * that routers share for it.
 *
 * @throws Error when something does not start
 */
export async function startSoakFleet(options: SoakFleetOptions): Promise<SoakFleet> {
  return started(new ProcessFleet(options));
}

class ProcessFleet implements SoakFleet {
  readonly #options: SoakFleetOptions;
  readonly #processes: FleetProcesses;
  readonly #engines: EngineProcess[] = [];
  readonly #routers: RouterProcess[] = [];
  readonly #killedEngines = new Set<string>();
  #closed: SoakRouter | undefined;

  constructor(options: SoakFleetOptions) {
    this.#options = options;
    this.#processes = new FleetProcesses({
      ...{ preset: "a10g-7b", speed: options.speed, blocks: blocksPerEngine },
      ...{ policy: "cache_aware", arguments: routerFlags, startTimeoutMs: settleMs },
    });
  }

  get open(): readonly SoakRouter[] {
    return this.#routers.filter((router) => router !== this.#closed);
  }

  wasEngineKilled(engine: string): boolean {
    return this.#killedEngines.has(engine);
  }

  async start(): Promise<void> {
    const { engines, routers } = this.#options;
    for (let index = 0; index < routers; index++) this.#routers.push(await this.#startRouter(`router-${index + 1}`));
    for (let index = 0; index < engines; index++) await this.#addEngine();
    await this.#untilWhole();
  }

  async replaceEngine(): Promise<void> {
    const engine = this.#engines.shift();
    if (!engine) return;
    await this.#admin("PATCH", `/admin/engines/${encodeURIComponent(engine.id)}`, { draining: true });
    await untilNothingMissing(() => this.#openAnswersOf(engine.id), settleMs, this.#options.ports);
    await this.#admin("DELETE", `/admin/engines/${encodeURIComponent(engine.id)}`);
    await engine.child.stop();
    await this.#addEngine();
    await this.#untilWhole();
  }

  async killEngine(): Promise<void> {
    const engine = this.#engines.shift();
    if (!engine) return;
    this.#killedEngines.add(engine.id);
    await endBy("SIGKILL", engine.child);
    await this.#admin("DELETE", `/admin/engines/${encodeURIComponent(engine.id)}`);
    await this.#addEngine();
    await this.#untilWhole();
  }

  async restartRouter(): Promise<void> {
    await this.#endRouter(async (router) => {
      // From here on, the notified load balancer sends it nothing more.
      this.#closed = router;
      await endBy("SIGTERM", router.child);
    });
  }

  async killRouter(): Promise<void> {
    await this.#endRouter(async (router) => {
      router.wasKilled = true;
      await endBy("SIGKILL", router.child);
    });
  }

  stop(): Promise<void> {
    return this.#processes.stop();
  }

  async #endRouter(end: (router: RouterProcess) => Promise<void>): Promise<void> {
    const router = this.#routers.at(-1);
    if (!router) return;
    await end(router);
    this.#routers.pop();
    this.#closed = undefined;
    const again = await this.#startRouter(router.name);
    await this.#retryUntilSettled(() => untilReady(again.child.listening, this.#engines.length));
    this.#routers.push(again);
    await this.#untilWhole();
  }

  async #startRouter(name: string): Promise<RouterProcess> {
    const others = this.#routers.map(({ child }) => child);
    const child = await this.#processes.startRouter(name, others, { engineUrls: [], port: 0 });
    const { url, adminUrl } = child.listening;
    return { name, url, adminUrl, child, wasKilled: false };
  }

  async #addEngine(): Promise<void> {
    const engine = await this.#processes.startEngine();
    await this.#admin("POST", "/admin/engines", { url: engine.url });
    this.#engines.push(engine);
  }

  /** Waits until every router can use every engine, knows every feed, and is linked with every other router. */
  async #untilWhole(): Promise<void> {
    for (const { child } of this.#routers) {
      const known = { members: this.#routers.length - 1, feeds: this.#engines.length };
      await this.#retryUntilSettled(async () => {
        await untilReady(child.listening, this.#engines.length);
        await untilKnown(child.listening.adminUrl, known, this.#options.ports);
      });
    }
  }

  /** Repeats a wait that timed out, for as long as it may take on a busy machine. */
  async #retryUntilSettled(wait: () => Promise<unknown>): Promise<void> {
    const deadlineMs = this.#options.ports.clock.nowMs() + settleMs;
    for (;;) {
      try {
        await wait();
        return;
      } catch (thrown) {
        if (this.#options.ports.clock.nowMs() >= deadlineMs) throw thrown;
      }
    }
  }

  /** Sends changes to the first router, which is never restarted. */
  async #admin(method: string, path: string, body?: object): Promise<void> {
    const [router] = this.#routers;
    const response = await fetch(`${router?.adminUrl}${path}`, {
      method,
      ...(body ? { headers: { "content-type": "application/json" }, body: JSON.stringify(body) } : {}),
    });
    if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${await response.text()}`);
  }

  /** @returns a sentence while a router has open answers of this engine or does not know that it drains */
  async #openAnswersOf(engine: string): Promise<string | undefined> {
    for (const { name, adminUrl } of this.open) {
      const response = await fetch(`${adminUrl}/admin/engines/${encodeURIComponent(engine)}`);
      const page = (await response.json()) as EnginePage;
      const open = page.targets.reduce((sum, { load }) => sum + load.in_flight, 0);
      if (!page.draining || open > 0) return `${name} has ${open} open answers of ${engine}`;
    }
    // Requests routed before the drain was known are still on their way.
    await pauseFor(100, this.#options.ports.scheduler);
    return undefined;
  }
}

interface EnginePage {
  readonly draining: boolean;
  readonly targets: readonly { readonly load: { readonly in_flight: number } }[];
}
