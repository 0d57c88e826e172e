import { createSeededRandom, mixWord, type Random } from "@espalier/core";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import type { SimRequest } from "../clients/workload.ts";
import { placementOf } from "../topology.ts";
import type { FrontOutcome } from "./front.ts";
import type { SimEngine } from "./sim-engine.ts";
import { overridesOfEngine, SimFleet, type SimFleetOptions } from "./sim-fleet.ts";

/**
 * How a request reaches one of several cells. `dns`: one name resolves to the addresses of all routers, and each
 * request goes to any of them. `hash`: a load balancer always sends a session to the same cell, to any router there.
 * `region`: every region is a cell for itself, and its clients know no other.
 */
export type Balancer = "dns" | "hash" | "region";

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
  /** By cell: the fleet-wide numbers of its engines and routers. */
  readonly #numbers: readonly CellNumbers[];

  /** @throws RangeError when a cell would have no router or no engine, or the cells are not the regions */
  constructor(options: CellsOptions) {
    const { cells, balancer, seed, placement } = options;
    this.#balancer = balancer;
    this.#random = createSeededRandom(seed + cells);
    this.#numbers = divide(options);
    this.fleets = this.#numbers.map(
      (numbers, cell) =>
        new SimFleet({
          ...{ ...options, time: this.time, seed: seed + 1_000_003 * cell },
          ...{ engines: numbers.engines.length, routers: numbers.routers.length },
          perEngine: numbers.engines.map((engine) => overridesOfEngine(options, engine)),
          ...(placement && { placement: placementOf(placement, numbers) }),
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
    const { engines, routers } = this.#numbers[cell]!;
    this.fleets[cell]!.send(request, (outcome, router) => {
      if (this.fleets.length === 1) return ended(outcome, router);
      const { engine, prefillEngine } = outcome;
      const moved = {
        engine: engines[engine] ?? engine,
        ...(prefillEngine === undefined ? {} : { prefillEngine: engines[prefillEngine]! }),
      };
      ended({ ...outcome, ...moved }, routers[router] ?? router);
    });
  }

  async stop(): Promise<void> {
    for (const fleet of this.fleets) await fleet.stop();
  }

  #cellOf({ session, region = 0 }: SimRequest): number {
    const cells = this.fleets.length;
    if (cells === 1) return 0;
    if (this.#balancer === "region") return region;
    return this.#balancer === "dns" ? this.#random.integer(cells) : mixWord(session) % cells;
  }
}

/** Fleet-wide numbers of a cell's engines and routers. */
interface CellNumbers {
  readonly engines: readonly number[];
  readonly routers: readonly number[];
}

/** Divides engines and routers among the cells: by region, or in equal parts. */
function divide({ cells, balancer, engines, routers, placement }: CellsOptions): readonly CellNumbers[] {
  const isByRegion = balancer === "region";
  if (isByRegion && cells !== placement?.regions) {
    throw new RangeError(`${cells} cells are not the ${placement?.regions ?? 0} regions`);
  }
  const part = (count: number, regions: readonly number[] | undefined, cell: number): readonly number[] =>
    Array.from({ length: count }, (_, number) => number).filter((number) =>
      isByRegion ? regions?.[number] === cell : isBetween(number, (count * cell) / cells, (count * (cell + 1)) / cells),
    );
  const divided = Array.from({ length: Math.max(0, cells) }, (_, cell) => ({
    engines: part(engines, placement?.engines, cell),
    routers: part(routers, placement?.routers, cell),
  }));
  if (!(cells >= 1) || divided.some((cell) => cell.engines.length === 0 || cell.routers.length === 0)) {
    throw new RangeError(`${routers} routers and ${engines} engines cannot be ${cells} cells`);
  }
  return divided;
}

const isBetween = (number: number, from: number, to: number): boolean =>
  number >= Math.floor(from) && number < Math.floor(to);
