import { createSeededRandom, type Random } from "@espalier/core";
import { differencesAmong } from "./differences.ts";
import type { Environment } from "./environment.ts";
import { ModelEngine } from "./model-engine.ts";
import { ModelRouter, type ModelRouterOptions } from "./model-router.ts";

export interface ClusterOptions {
  readonly seed: number;
  readonly environment: Environment;
  readonly engines: number;
  readonly blocksPerEngine?: number;
  readonly feedDelayMs?: number;
  /** Default: true. Where they do not, what nobody has read completely is not known. */
  readonly canReplay?: boolean;
  readonly wrapPorts?: ModelRouterOptions["wrapPorts"];
}

/** Routers that share everything, and the engines whose events they read. */
export class Cluster {
  readonly random: Random;
  readonly engines: readonly ModelEngine[];
  readonly environment: Environment;
  readonly routers = new Map<string, ModelRouter>();
  readonly #options: ClusterOptions;
  readonly #bound = new Set<string>();
  readonly #registered = new Set<string>();
  #started = 0;

  constructor(options: ClusterOptions) {
    this.#options = options;
    this.environment = options.environment;
    this.random = createSeededRandom(options.seed);
    this.engines = Array.from(
      { length: options.engines },
      (_, at) =>
        new ModelEngine({ key: `engine-${at}/0`, random: this.random, blocks: options.blocksPerEngine ?? 150 }),
    );
  }

  /** Starts a router; one of the same name must have ended. */
  async add(name: string): Promise<ModelRouter> {
    if (this.routers.get(name)?.isAlive) throw new RangeError(`${name} runs already`);
    const { environment, feedDelayMs = 5, canReplay = true, wrapPorts, seed } = this.#options;
    const router = new ModelRouter({
      ...{ name, environment, feedDelayMs, canReplay },
      engines: this.engines,
      random: createSeededRandom(seed * 7_919 + ++this.#started),
      ...(wrapPorts && { wrapPorts }),
    });
    this.routers.set(name, router);
    await router.start();
    return router;
  }

  router(name: string): ModelRouter {
    const router = this.routers.get(name);
    if (!router) throw new RangeError(`no router ${name}`);
    return router;
  }

  get alive(): readonly ModelRouter[] {
    return [...this.routers.values()].filter(({ isAlive }) => isAlive);
  }

  bind(router: ModelRouter, key: string, value: string): void {
    this.#bound.add(key);
    router.replica.bindings.set(key, value, 600_000);
  }

  register(router: ModelRouter, engine: string, value: number | undefined): void {
    this.#registered.add(engine);
    if (value === undefined) router.replica.registry.removeEngine(engine, "static");
    else router.replica.registry.putEngine(engine, "static", { url: `http://${engine}`, value });
  }

  /** Requests, predictions and events for a while, at all living routers. */
  async work(steps: number): Promise<void> {
    for (let step = 0; step < steps; step++) {
      for (const engine of this.engines) engine.publish();
      for (const router of this.alive) this.use(router);
      await this.environment.pass(5);
    }
  }

  /** One request at a router, with all that it leaves behind. */
  use(router: ModelRouter): void {
    const { key } = this.engines[this.random.integer(this.engines.length)]!;
    router.setLoad(key, this.random.integer(20));
    router.place(key, this.random.integer(30), 1 + this.random.integer(40));
    this.bind(router, `resp_${this.random.integer(50)}`, key);
  }

  /** What the living routers do not agree on, or do not know, in words; empty when all is well. */
  differences(): string[] {
    return differencesAmong(this.alive, {
      engines: this.engines,
      bound: this.#bound,
      isTruthKnown: this.#options.canReplay ?? true,
    });
  }

  /**
   * Passes time until the condition holds, up to as many times the timeout as the environment asks for.
   *
   * @returns how long that took, in milliseconds
   * @throws Error with what `why` says when it does not hold in time
   */
  async until(condition: () => boolean, timeoutMs: number, why: () => string): Promise<number> {
    const { clock, timeoutFactor } = this.environment;
    const startMs = clock.nowMs();
    const deadlineMs = timeoutMs * timeoutFactor;
    while (!condition()) {
      if (clock.nowMs() - startMs >= deadlineMs) throw new Error(`not within ${deadlineMs} ms: ${why()}`);
      await this.environment.pass(10);
    }
    return clock.nowMs() - startMs;
  }

  async untilConverged(timeoutMs = 5_000): Promise<number> {
    const isConverged = (): boolean => this.differences().length === 0;
    return this.until(isConverged, timeoutMs, () => this.differences().slice(0, 12).join("; "));
  }

  /** Until every router is ready, and every feed is read by one and kept warm by another. */
  async untilSettled(timeoutMs = 10_000): Promise<number> {
    return this.until(
      () => this.#unsettled().length === 0,
      timeoutMs,
      () => this.#unsettled().slice(0, 12).join("; "),
    );
  }

  #unsettled(): string[] {
    const found: string[] = [];
    for (const { name, backend } of this.alive) {
      if (backend.waitingFor.length > 0) found.push(`${name} waits for ${backend.waitingFor.join(", ")}`);
      const known = backend.members().filter(({ state }) => state === "alive").length;
      if (known !== this.alive.length - 1) found.push(`${name} knows ${known} others`);
    }
    for (const { key } of this.engines) {
      const roles = this.alive.map(({ ownership }) => ownership.roleOf(key));
      const owners = roles.filter((role) => role === "owner").length;
      const backups = roles.filter((role) => role === "backup").length;
      if (owners !== 1) found.push(`${key} has ${owners} owners`);
      if (backups !== Math.min(1, this.alive.length - 1)) found.push(`${key} has ${backups} backups`);
    }
    return found;
  }

  async stop(): Promise<void> {
    for (const router of this.alive) await router.kill();
    await this.environment.stop();
  }
}
