import { createSeededRandom } from "@espalier/core";
import { fixedSeeds } from "@espalier/testing";
import { expect, test } from "vitest";
import { itemOverheadBytes } from "../../src/documents/journal-document.ts";
import { PlacementItems } from "../../src/documents/placement-items.ts";

interface NaiveItem {
  readonly number: number;
  readonly sizeBytes: number;
  clock: number | undefined;
  untilMs: number;
}

/** Items in the order of writing, looked through from end to end each time. */
class NaiveItems {
  items: NaiveItem[] = [];
  gone: number[] = [];

  room(maxBytes: number): void {
    while (this.items.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0) > maxBytes) this.#go(this.items.shift()!);
  }

  expire(nowMs: number): void {
    for (const item of this.items) if (item.untilMs <= nowMs) this.#go(item);
    this.items = this.items.filter(({ untilMs }) => untilMs > nowMs);
  }

  #go({ clock }: NaiveItem): void {
    if (clock !== undefined) this.gone.push(clock);
  }
}

const sorted = (numbers: readonly number[]) => [...numbers].sort((a, b) => a - b);

test.each(fixedSeeds(20))("items go as the plain rule says, seed %i", (seed) => {
  const random = createSeededRandom(seed);
  const maxBytes = 30 * (itemOverheadBytes + 100);
  const items = new PlacementItems(maxBytes);
  const naive = new NaiveItems();
  let clock = 0;
  for (let nowMs = 0; nowMs < 1_500; nowMs++) {
    const length = random.integer(200);
    if (random.integer(3) > 0) {
      const untilMs = nowMs + random.integer(seed % 2 === 0 ? 60 : 600);
      const number = items.add(new Uint8Array(length), untilMs);
      naive.items.push({ number, sizeBytes: length + itemOverheadBytes, clock: undefined, untilMs });
      naive.room(maxBytes);
    }
    const kept = naive.items[random.integer(naive.items.length + 1)];
    if (kept !== undefined && random.integer(4) === 0) {
      const untilMs = nowMs + random.integer(100);
      items.keep(kept.number, untilMs);
      kept.untilMs = Math.max(kept.untilMs, untilMs);
    }
    for (const { number, untilMs } of naive.items) if (untilMs <= nowMs) expect(items.holds(number, nowMs)).toBe(false);
    if (random.integer(4) > 0) continue;
    items.expire(nowMs);
    naive.expire(nowMs);
    const pending = items.takePending();
    expect(pending).toHaveLength(naive.items.filter((item) => item.clock === undefined).length);
    let next = clock;
    for (const item of naive.items) item.clock ??= next++;
    for (const { committed } of pending) committed(clock++);
    expect(items.items).toBe(naive.items.length);
    expect(sorted(items.takeDeletable())).toEqual(sorted(naive.gone));
    naive.gone = [];
    expect(items.deletableBytes).toBe(0);
  }
});

test("what is held is safe for at least an eighth of the room", () => {
  const maxBytes = 80 * (itemOverheadBytes + 10);
  const items = new PlacementItems(maxBytes);
  const numbers: number[] = [];
  for (let at = 0; at < 300; at++) {
    numbers.push(items.add(new Uint8Array(10), 1e9));
    const held = numbers.filter((number) => items.holds(number, 0));
    expect(held).toEqual(numbers.slice(-70));
    const oldest = held[0]!;
    // Nine more, and what was held is still there.
    if (at % 10 !== 0) continue;
    for (let more = 0; more < 9; more++) numbers.push(items.add(new Uint8Array(10), 1e9));
    for (const { committed } of items.takePending()) committed(0);
    items.keep(oldest, 2e9);
    items.expire(1.5e9);
    expect(items.items).toBe(1);
    return;
  }
});
