import { createSeededRandom, type Random, silentLogger, silentMeter } from "@espalier/core";
import { createMemoryNetwork, createVirtualTime, type MemoryNetwork, type VirtualTime } from "@espalier/testing";
import { createMesh, type Mesh, type MeshOptions } from "../src/mesh.ts";
import type { ReplicaPorts } from "../src/replica-ports.ts";

export interface ClusterRouter<Replica extends ReplicaPorts> {
  readonly name: string;
  readonly address: string;
  readonly replica: Replica;
  readonly mesh: Mesh;
  isAlive: boolean;
}

export interface ClusterOptions<Replica extends ReplicaPorts> {
  readonly seed?: number;
  /** Every router dials these; by default the first two addresses. */
  readonly seeds?: readonly string[];
  replica(name: string, epoch: number): Replica;
  readonly mesh?: Partial<MeshOptions>;
}

/** Whole meshes over a network in memory, in virtual time. */
export class Cluster<Replica extends ReplicaPorts> {
  readonly time: VirtualTime = createVirtualTime();
  readonly random: Random;
  readonly network: MemoryNetwork;
  readonly routers = new Map<string, ClusterRouter<Replica>>();
  readonly #options: ClusterOptions<Replica>;

  constructor(options: ClusterOptions<Replica>) {
    this.#options = options;
    this.random = createSeededRandom(options.seed ?? 1);
    const { clock, scheduler } = this.time;
    this.network = createMemoryNetwork({ clock, scheduler, random: this.random });
    this.network.setSpeed({ delayMs: 1 });
  }

  /** Starts a router; one of the same name must be dead. */
  async add(name: string, epoch = 1, prepare: (replica: Replica) => void = () => {}): Promise<ClusterRouter<Replica>> {
    const address = addressOf(name);
    const replica = this.#options.replica(name, epoch);
    prepare(replica);
    const mesh = createMesh({
      replica,
      transport: this.network.transport(address),
      cluster: "test",
      fleetSeed: "seed",
      blockSizeTokens: 16,
      security: { kind: "secret", secrets: ["a secret of the test"] },
      seeds: this.#options.seeds ?? [addressOf("a"), addressOf("b")],
      clock: this.time.clock,
      scheduler: this.time.scheduler,
      random: this.random,
      logger: silentLogger,
      meter: silentMeter,
      ...this.#options.mesh,
    });
    const router = { name, address, replica, mesh, isAlive: true };
    this.routers.set(name, router);
    await mesh.start();
    return router;
  }

  router(name: string): ClusterRouter<Replica> {
    const router = this.routers.get(name);
    if (router === undefined) throw new RangeError(`no router ${name}`);
    return router;
  }

  get alive(): readonly ClusterRouter<Replica>[] {
    return [...this.routers.values()].filter(({ isAlive }) => isAlive);
  }

  /** The process is gone at once; nothing of it runs any more. */
  async kill(name: string): Promise<void> {
    const router = this.router(name);
    router.isAlive = false;
    this.network.kill(router.address);
    await router.mesh.stop();
  }

  /** See `VirtualTime`. */
  until(condition: () => boolean, timeoutMs: number): number {
    return this.time.until(condition, timeoutMs);
  }

  async stop(): Promise<void> {
    for (const { mesh } of this.alive) await mesh.stop();
  }
}

/** An IP address for each name of one letter, so that no resolver is asked. */
export function addressOf(name: string): string {
  return `127.0.0.${name.charCodeAt(0) - 96}:7000`;
}
