import { createSeededRandom } from "@espalier/common";

/** The numbers below `count` in an order drawn with the seed (Fisher and Yates). */
export function shuffled(count: number, seed: number): Uint32Array {
  const random = createSeededRandom(seed);
  const order = Uint32Array.from({ length: count }, (_, at) => at);
  for (let at = count - 1; at > 0; at--) {
    const other = random.integer(at + 1);
    const moved = order[at]!;
    order[at] = order[other]!;
    order[other] = moved;
  }
  return order;
}
