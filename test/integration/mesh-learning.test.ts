import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { quietSims } from "./cache-rig.ts";
import { tokensOf } from "./cached-turns.ts";
import { call, type Json, post } from "./client.ts";
import { joinRouter, meshRouters, untilLinked } from "./mesh-rig.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/** What is believed before anything is learned: 8,000 tokens a second. */
const believedMsPerToken = 0.125;

/** What a router expects a token of a prompt to take, at each target. */
async function expectedMs(router: RunningRouter): Promise<readonly number[]> {
  const { json } = await router.admin("POST", "/admin/explain", { model: "tiny", prompt: tokensOf(9, 400) });
  const { candidates } = json as unknown as { candidates: readonly { readonly key: string; readonly signals: Json }[] };
  return candidates.map(({ signals }) => Number(signals.prefillMsPerToken));
}

const isLearned = (each: readonly number[]): boolean => each.every((ms) => ms > 0 && ms !== believedMsPerToken);

// At the speed of life: a thousand times faster, what is learned is the noise of the machine, of which two routers make different things.
test("a router that joins expects of the engines what another one has learned, and says so", async () => {
  const sims = await quietSims(rig, 2, { speed: 1, parameters: { prefillMsPerToken: 4 * believedMsPerToken } });
  const options = { tokenizes: false, config: { policy: "predicted_latency" } };
  const [first] = await meshRouters(rig, 1, sims, options);
  for (let at = 0; at < 6; at++) {
    const body = { model: "tiny", prompt: tokensOf(at, 100 + 80 * at), max_tokens: 3, stream: true };
    expect((await post(`${first!.url}/v1/completions`, body)).status).toBe(200);
  }
  expect(isLearned(await expectedMs(first!))).toBe(true);

  const joiner = await joinRouter(rig, first, sims, { ...options, mesh: { "router-id": "joiner" } });
  await untilLinked([first!, joiner]);
  await waitFor(
    async () => {
      const [learned, reported] = [await expectedMs(first!), await expectedMs(joiner)];
      return isLearned(reported) && reported.every((ms, at) => Math.abs(ms / learned[at]! - 1) < 0.1);
    },
    { what: "rates that the other router has learned", deadlineMs: 10_000 },
  );
  const metrics = (await call(`${joiner.adminUrl}/metrics`)).text;
  expect(metrics).toMatch(/espalier_learned_times_received_total\{outcome="taken"\} [1-9]/);
  // The other router's release and the load it sees are notes, too.
  expect(metrics).toMatch(/espalier_shared_estimates [1-3]\b/);
}, 60_000);
