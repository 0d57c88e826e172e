import { expect, test } from "vitest";
import { BinaryHeap } from "../src/binary-heap.ts";
import { createSeededRandom } from "../src/random.ts";

test.each([1, 2, 3])("what comes out is what a sorted list gives, seed %i", (seed) => {
  const random = createSeededRandom(seed);
  const heap = new BinaryHeap<number>((one, other) => one < other);
  let sorted: number[] = [];
  for (let step = 0; step < 5_000; step++) {
    if (random.integer(3) > 0) {
      const item = random.integer(1_000);
      heap.push(item);
      sorted.push(item);
      sorted.sort((one, other) => one - other);
    } else if (random.integer(200) === 0) {
      sorted = sorted.filter((item) => item % 2 === 0);
      heap.reset([...heap].filter((item) => item % 2 === 0));
    } else expect(heap.pop()).toBe(sorted.shift());
    expect([heap.first, heap.size]).toEqual([sorted[0], sorted.length]);
  }
});
