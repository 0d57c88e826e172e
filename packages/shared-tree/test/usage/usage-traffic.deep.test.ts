import { createSeededRandom } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { connect, createUsageRouter, tokensElsewhere } from "./usage-rig.ts";

const tenants = Array.from({ length: 1_000 }, (_, index) => `tenant-${index}`);
const seconds = 30;

/**
 * Bytes that one of eight routers makes in a second for each peer, with a thousand tenants.
 *
 * @param areWaiting whether requests of all of them wait at every router
 */
function bytesPerS({
  requestsPerS,
  areWaiting,
}: {
  readonly requestsPerS: number;
  readonly areWaiting: boolean;
}): number {
  const time = createVirtualTime();
  const random = createSeededRandom(1);
  const routers = Array.from({ length: 8 }, (_, index) => createUsageRouter(`router-${index}`, { time }));
  connect(routers[0]!, routers[1]!);
  for (const { pool } of routers)
    for (const tenant of tenants) pool.waits("default", tenant, areWaiting ? 0 : undefined);
  let bytes = 0;
  for (const { plane } of routers) plane.exchange.onFrame(({ length }) => (bytes += length));
  const serve = (): void => {
    for (const { pool } of routers) {
      pool.served("default", tenants[random.integer(tenants.length)]!, 200 + random.integer(4_000));
    }
  };
  // So much that what is forgotten and what is new keep each other in balance.
  for (let count = 0; count < 20_000; count++) serve();
  time.advance(1_000);
  bytes = 0;
  for (let count = 0; count < requestsPerS * seconds; count++) {
    serve();
    time.advance(1_000 / requestsPerS);
  }
  expect(tokensElsewhere(routers[1]!, tenants[0]!)).toBeGreaterThan(1_000);
  return bytes / seconds / routers.length;
}

test("a thousand tenants cost a router some kilobytes a second for each peer", () => {
  const quiet = bytesPerS({ requestsPerS: 20, areWaiting: false });
  const usual = bytesPerS({ requestsPerS: 100, areWaiting: false });
  const backlogged = bytesPerS({ requestsPerS: 100, areWaiting: true });
  expect(quiet).toBeLessThan(1_000);
  expect(usual).toBeLessThan(2_500);
  expect(backlogged).toBeLessThan(14_000);
});
