import { createSeededRandom, type Random } from "@espalier/common";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import type { SimRequest } from "../clients/workload.ts";
import type { FrontOutcome } from "./front.ts";
import type { SimEngine } from "./sim-engine.ts";
import { SimFleet, type SimFleetOptions } from "./sim-fleet.ts";

/**
 * How a request reaches one of several cells. `dns`: one name resolves to the addresses of all routers, and each
 * request goes to any of them. `hash`: a load balancer always sends a session to the same cell, to any router there.
 */
export type Balancer = "dns" | "hash";

export interface CellsOptions extends SimFleetOptions {
  /** Engines and routers are divided among this many cells. */
  readonly cells: number;
  readonly balancer: Balancer;
}

/** A fleet of isolated cells: router tiers, each with its own engines. */
export class Cells {
  readonly time: VirtualTime = createVirtualTime();
  readonly fleets: readonly SimFleet[];
  readonly engines: readonly SimEngine[];
  readonly #balancer: Balancer;
  readonly #random: Random;
  /** By cell: the first numbers of its engines and routers. */
  readonly #first: readonly { readonly engine: number; readonly router: number }[];

  /** @throws RangeError when a cell would have no router or no engine */
  constructor(options: CellsOptions) {
    const { cells, balancer, engines, routers, seed } = options;
    if (!Number.isInteger(cells) || cells < 1 || cells > Math.min(engines, routers)) {
      throw new RangeError(`${routers} routers and ${engines} engines cannot be ${cells} cells`);
    }
    const firstOf = (count: number, cell: number): number => Math.floor((count * cell) / cells);
    const sizeOf = (count: number, cell: number): number => firstOf(count, cell + 1) - firstOf(count, cell);
    const numbers = Array.from({ length: cells }, (_, cell) => cell);
    this.#balancer = balancer;
    this.#random = createSeededRandom(seed + cells);
    this.#first = numbers.map((cell) => ({ engine: firstOf(engines, cell), router: firstOf(routers, cell) }));
    this.fleets = numbers.map(
      (cell) =>
        new SimFleet({
          ...{ ...options, time: this.time, seed: seed + 1_000_003 * cell },
          ...{ engines: sizeOf(engines, cell), routers: sizeOf(routers, cell) },
        }),
    );
    this.engines = this.fleets.flatMap((fleet) => fleet.engines);
  }

  /** Bytes sent between routers. */
  get bytesSent(): number {
    return this.fleets.reduce((sum, { network }) => sum + network.bytesSent, 0);
  }

  /** @throws Error when routers do not become ready */
  async start(): Promise<void> {
    for (const fleet of this.fleets) await fleet.start();
  }

  /** Runs up to a moment. */
  run(untilMs: number): Promise<void> {
    return this.fleets[0]!.run(untilMs);
  }

  /** Sends a client's request to the fleet. Engines and routers have fleet-wide numbers. */
  send(request: SimRequest, ended: (outcome: FrontOutcome, router: number) => void): void {
    const cell = this.#cellOf(request);
    const first = this.#first[cell]!;
    this.fleets[cell]!.send(request, (outcome, router) => {
      if (cell === 0) return ended(outcome, router);
      const { engine, prefillEngine } = outcome;
      const moved = {
        engine: engine < 0 ? engine : engine + first.engine,
        ...(prefillEngine === undefined ? {} : { prefillEngine: prefillEngine + first.engine }),
      };
      ended({ ...outcome, ...moved }, router < 0 ? router : router + first.router);
    });
  }

  async stop(): Promise<void> {
    for (const fleet of this.fleets) await fleet.stop();
  }

  #cellOf({ session }: SimRequest): number {
    const cells = this.fleets.length;
    if (cells === 1) return 0;
    return this.#balancer === "dns" ? this.#random.integer(cells) : spread(session) % cells;
  }
}

/** Mixes the bits of a number: the finalizer of MurmurHash3. */
function spread(number: number): number {
  let bits = Math.imul(number ^ (number >>> 16), 0x85ebca6b);
  bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2ae35);
  return (bits ^ (bits >>> 16)) >>> 0;
}
