import type { PipeSpeed } from "./memory-pipe.ts";

/** A direction between two addresses. */
export interface Direction {
  readonly from: string;
  readonly to: string;
}

const keyOf = ({ from, to }: Direction): string => `${from}>${to}`;

/** What is wrong with a network in memory at the moment. */
export class MemoryFaults {
  readonly #speeds = new Map<string, PipeSpeed>();
  readonly #cuts = new Set<string>();
  readonly frozen = new Set<string>();
  readonly refusing = new Set<string>();
  #groups = new Map<string, number>();
  #speed: PipeSpeed = { delayMs: 0, jitterMs: 0, bytesPerMs: Number.POSITIVE_INFINITY };

  speed(direction: Direction): PipeSpeed {
    return this.#speeds.get(keyOf(direction)) ?? this.#speed;
  }

  setSpeed(speed: Partial<PipeSpeed>, direction?: Direction): void {
    if (direction) this.#speeds.set(keyOf(direction), { ...this.speed(direction), ...speed });
    else this.#speed = { ...this.#speed, ...speed };
  }

  setCut(direction: Direction, isCut: boolean): void {
    if (isCut) this.#cuts.add(keyOf(direction));
    else this.#cuts.delete(keyOf(direction));
  }

  partition(groups: readonly (readonly string[])[]): void {
    this.#groups = new Map(groups.flatMap((group, index) => group.map((address) => [address, index] as const)));
  }

  heal(): void {
    this.#cuts.clear();
    this.#groups.clear();
    this.frozen.clear();
    this.refusing.clear();
  }

  isCut(direction: Direction): boolean {
    const { from, to } = direction;
    if (this.frozen.has(from) || this.frozen.has(to) || this.#cuts.has(keyOf(direction))) return true;
    const here = this.#groups.get(from);
    const there = this.#groups.get(to);
    return here !== undefined && there !== undefined && here !== there;
  }
}
