import { createSeededRandom } from "@espalier/core";
import { type AdmissionSettings, defaultAdmissionSettings } from "@espalier/routing";
import { expect, test, vi } from "vitest";
import type { SimFleetOptions } from "../../src/fleet/sim-fleet.ts";
import { createFleetRig } from "./fleet-rig.ts";
import { requestOf } from "./requests.ts";

// Takes some seconds of a core, which busy machines make ten times as many of.
vi.setConfig({ testTimeout: 180_000 });

/** Requests fill the engines, and tenants begin to wait, before it. */
const settledMs = 15_000;
const outputTokens = 32;

const oneClass: AdmissionSettings = {
  ...defaultAdmissionSettings,
  classes: [{ ...defaultAdmissionSettings.classes[1]!, maxPendingTokens: 8_192 }],
  maxQueued: 200,
};

/**
 * Tokens that a tenant with a tenth of the demand was served, for one of the other tenant; together they ask for five times
 * what two engines can do.
 *
 * @param routers of four, those that the small tenant's clients have found
 */
async function servedRatio(
  routers: readonly number[],
  { durationMs = 45_000, ...options }: Partial<SimFleetOptions> & { readonly durationMs?: number } = {},
): Promise<number> {
  const { fleet } = createFleetRig({ routers: 4, engines: 2, admission: oneClass, links: "delays", ...options });
  await fleet.start();
  const { clock, scheduler } = fleet.time;
  const random = createSeededRandom(options.seed ?? 1);
  const beginMs = clock.nowMs();
  const served = { small: 0, large: 0 };
  let index = 0;
  const send = (tenant: "small" | "large", routerNodes: readonly number[]): void => {
    const promptTokens = 200 + random.integer(3_000);
    const request = { ...requestOf({ index: index++, promptTokens, outputTokens }), tenant };
    const seat = fleet.routerNodes[routerNodes[random.integer(routerNodes.length)]!]!;
    scheduler.after(random.float() * durationMs, () => {
      seat.handle(request, ({ error, firstTokenMs }) => {
        if (error !== undefined || firstTokenMs < beginMs + settledMs || firstTokenMs > beginMs + durationMs) return;
        served[tenant] += promptTokens + 2 * outputTokens;
      });
    });
  };
  for (let count = 0; count < (6 * durationMs) / 1_000; count++) {
    send("small", routers);
    for (let more = 0; more < 10; more++) send("large", [0, 1, 2, 3]);
  }
  await fleet.run(beginMs + durationMs);
  await fleet.stop();
  return served.small / served.large;
}

test.each([
  { seed: 1, routers: [0, 1, 2, 3] },
  { seed: 2, routers: [0, 1, 2] },
  { seed: 3, routers: [0, 1] },
])("10 : 1 in demand over four routers is 1 : 1 in service when both wait: %j", async ({ seed, routers }) => {
  expect(Math.abs((await servedRatio(routers, { seed })) - 1)).toBeLessThan(0.05);
});

test("so it is over real links", async () => {
  expect(Math.abs((await servedRatio([1, 2], { seed: 4, links: "real", durationMs: 60_000 })) - 1)).toBeLessThan(0.05);
});

test("routers that do not tell each other give a tenant its half only where its clients are", async () => {
  expect(await servedRatio([0, 1], { seed: 3, sharing: "events-only" })).toBeLessThan(0.6);
});
