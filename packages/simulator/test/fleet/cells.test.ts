import { expect, test } from "vitest";
import { type Balancer, Cells } from "../../src/fleet/cells.ts";
import { defaultTiming } from "../../src/run.ts";
import { engineParameters, requestOf } from "./requests.ts";

const cellsOf = (balancer: Balancer, sizes: { engines?: number; routers?: number; cells?: number } = {}): Cells =>
  new Cells({
    ...{ engines: 9, routers: 7, cells: 3, balancer, seed: 1, timing: defaultTiming, parameters: engineParameters },
    ...{ policy: "least_work", sharing: "mesh", links: "delays", ...sizes },
  });

/** Sends 12 sessions four requests each, one after the other. @returns engine and router of each, by session */
async function serve(fleet: Cells) {
  await fleet.start();
  const served = Array.from(
    { length: 12 },
    () => [] as { engine: number; router: number; error: string | undefined }[],
  );
  for (let index = 0; index < 48; index++) {
    const session = index % 12;
    const request = requestOf({ index, session, outputTokens: 4 });
    fleet.send(request, ({ engine, error }, router) => served[session]!.push({ engine, router, error }));
    await fleet.run(fleet.time.clock.nowMs() + 100);
  }
  await fleet.run(fleet.time.clock.nowMs() + 5_000);
  await fleet.stop();
  return served;
}

const engineCell = (engine: number): number => Math.floor(engine / 3);
/** Routers 0 and 1, 2 and 3, 4 to 6. */
const routerCell = (router: number): number => (router < 2 ? 0 : router < 4 ? 1 : 2);

test("a balancer sends a session to one cell, whose routers choose among its own engines", async () => {
  const served = await serve(cellsOf("hash"));
  for (const requests of served) {
    expect(requests.map(({ error }) => error)).toEqual([undefined, undefined, undefined, undefined]);
    expect(new Set(requests.map(({ engine }) => engineCell(engine))).size).toBe(1);
    for (const { engine, router } of requests) expect(routerCell(router)).toBe(engineCell(engine));
  }
  const all = served.flat();
  expect(new Set(all.map(({ router }) => routerCell(router)))).toEqual(new Set([0, 1, 2]));
});

test("by one name in DNS a session comes to all cells, and never across their borders", async () => {
  const served = await serve(cellsOf("dns"));
  expect(served.some((requests) => new Set(requests.map(({ engine }) => engineCell(engine))).size > 1)).toBe(true);
  for (const { engine, router } of served.flat()) expect(routerCell(router)).toBe(engineCell(engine));
});

test("there are no more cells than routers or engines", () => {
  expect(cellsOf("dns", { cells: 7 }).fleets).toHaveLength(7);
  expect(() => cellsOf("dns", { cells: 8 })).toThrow("7 routers and 9 engines cannot be 8 cells");
  expect(() => cellsOf("dns", { cells: 7, engines: 6 })).toThrow(RangeError);
  expect(() => cellsOf("dns", { cells: 0 })).toThrow(RangeError);
});
