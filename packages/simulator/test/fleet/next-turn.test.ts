import { expect, test, vi } from "vitest";
import { defaultTiming } from "../../src/run.ts";
import { createFleetRig, type FleetRig } from "./fleet-rig.ts";
import { requestOf } from "./requests.ts";

// Takes a second of a core, which busy machines make ten of.
vi.setConfig({ testTimeout: 60_000 });

/** News from router to router is faster than an answer to its client and the next request together. */
const timing = { ...defaultTiming, linkDelayMs: 0.1 };
const turns = 24;

/** One conversation, each turn sent in the moment in which the last one is answered. @returns who served each turn */
async function converse({ fleet, pass }: FleetRig): Promise<{ engine: number; router: number }[]> {
  const served: { engine: number; router: number }[] = [];
  const sendTurn = (index: number): void => {
    const request = requestOf({ index, session: 0, promptTokens: 256 + 32 * index });
    fleet.send(request, ({ engine }, router) => {
      served.push({ engine, router });
      if (served.length < turns) sendTurn(index + 1);
    });
  };
  sendTurn(0);
  for (let waited = 0; served.length < turns && waited < 60; waited++) await pass(1_000);
  return served;
}

// Other routers heard of an end 8 ms late and more. Until then the only engine with a request in flight was at its bound,
// so a turn that came sooner, to another router, went to an engine that had nothing of it.
test.each(["prefix_hash", "consistent_hashing"])(
  "%s: the next turn finds its engine as soon as the last one is answered, whichever router it comes to",
  async (policy) => {
    const rig = createFleetRig({ policy, timing });
    await rig.fleet.start();
    const served = await converse(rig);
    expect(served).toHaveLength(turns);
    expect(new Set(served.map(({ router }) => router)).size).toBe(3);
    expect(new Set(served.map(({ engine }) => engine)).size).toBe(1);
    await rig.fleet.stop();
  },
);
