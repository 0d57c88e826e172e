import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { chat, type OpenRequest, openPost } from "./client.ts";
import { createRig, type RunningRouter, type Sim } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const streams = 120;

interface Fate {
  readonly engine: string;
  readonly attempts: number;
  readonly complete: boolean;
  /** Text of the model, and then an error frame at the end. */
  readonly isReset: boolean;
  readonly cutAfterText: boolean;
}

/** Prompts of their own, so that no engine has them in its cache, and long enough to be computed for a while. */
function startLoad(router: RunningRouter) {
  const requests = Array.from({ length: streams }, (_, at) => {
    const messages = [{ role: "user", content: `${at} `.repeat(1_000) }];
    return openPost(`${router.url}/v1/chat/completions`, chat({ stream: true, max_tokens: 60, messages }));
  });
  return {
    untilBegun: async (count: number) => {
      const begun = () => requests.filter((request) => request.received() !== "").length;
      await waitFor(() => begun() >= count, { what: `${count} streams that have begun`, deadlineMs: 10_000 });
    },
    fates: () => Promise.all(requests.map(readFate)),
  };
}

async function readFate(request: OpenRequest): Promise<Fate> {
  const { headers, statusCode } = await request.head;
  const text = (await request.body).toString();
  return {
    engine: String(headers["x-espalier-engine"]),
    attempts: Number(headers["x-espalier-attempts"]),
    complete: statusCode === 200 && text.endsWith("data: [DONE]\n\n") && !text.includes('"error"'),
    // The headers of its answer had come, which nobody but the router saw.
    isReset: statusCode === 502 && text.includes('"code":"upstream_reset"'),
    cutAfterText: /^data: \{"id"[\s\S]*data: \{"error":[^\n]*"code":"upstream_cut_short"\}\}\n\n$/.test(text),
  };
}

const deaths: readonly (readonly [string, (sim: Sim) => Promise<void>])[] = [
  ["closes its port and its connections", (sim) => sim.stop()],
  ["refuses connections for a while", (sim) => sim.fault({ kind: "refuse", delayMs: 600_000 })],
];

test.each(deaths)("an engine that %s under load fails only what had begun there", async (_, die) => {
  const sims = await rig.sims(3, { speed: 20 });
  const config = { policy: "round_robin" };
  const router = await rig.router({ engines: sims.map(({ url }) => url), config });
  const victim = sims[0]!;
  // Half of what it gets it has not answered when it dies: nothing of that has begun.
  await victim.fault({ kind: "hang-before-headers", count: streams / 6 });
  const load = startLoad(router);
  await load.untilBegun(10);

  await die(victim);
  const fates = await load.fates();

  const failed = fates.filter(({ complete }) => !complete);
  const cut = failed.filter(({ isReset }) => !isReset);
  for (const fate of cut) expect(fate).toMatchObject({ engine: victim.id, cutAfterText: true });
  expect(failed.length).toBeLessThan(streams / 3);
  expect(fates.filter(({ attempts }) => attempts === 2).length).toBeGreaterThan(0);
  await router.untilIdle();

  for (const fate of await startLoad(router).fates()) expect(fate).toMatchObject({ complete: true });
});
