/** Engines of role both keep to one side each, as many as recent requests ask for. */
import { type Clock, systemClock } from "@espalier/core";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { call } from "./client.ts";
import { ask, longChat, nothingLeaks, pairSims, splitConfig } from "./disaggregation-rig.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/** The router's own time goes on by leaps between its requests. */
function leapingClock(): Clock & { leap(ms: number): void } {
  let aheadMs = 0;
  return {
    nowMs: () => systemClock.nowMs() + aheadMs,
    wallMs: () => systemClock.wallMs() + aheadMs,
    leap(ms) {
      aheadMs += ms;
    },
  };
}

async function assignedRolesOf(router: RunningRouter): Promise<Readonly<Record<string, string | null>>> {
  const { engines } = (await call(`${router.adminUrl}/admin/engines`)).json as unknown as {
    readonly engines: readonly { readonly id: string; readonly assigned_role: string | null }[];
  };
  return Object.fromEntries(engines.map(({ id, assigned_role }) => [id, assigned_role]));
}

test("after half a minute of requests roles are assigned, which requests keep to; a drained engine's goes to another", async () => {
  const sims = await pairSims(rig, { protocol: "nixl", roles: ["both", "both", "both", "both"] });
  const clock = leapingClock();
  const router = await rig.router({
    engines: sims.map(({ entry }) => entry),
    config: { disaggregation: { ...splitConfig.disaggregation, "apply-role-balance": true } },
    clock,
  });
  for (let at = 0; at < 8; at++) expect((await ask(router, longChat(`first ${at}`))).status).toBe(200);
  expect(new Set(Object.values(await assignedRolesOf(router)))).toEqual(new Set([null]));
  clock.leap(31_000);
  await waitFor(
    async () => {
      await ask(router, longChat("in between"));
      clock.leap(1_000);
      return Object.values(await assignedRolesOf(router)).every((role) => role !== null);
    },
    { what: "assigned roles" },
  );
  const idsOf = async (role: string): Promise<readonly string[]> => {
    const roles = await assignedRolesOf(router);
    return Object.keys(roles).filter((id) => roles[id] === role);
  };
  const [prefill, decode] = [await idsOf("prefill"), await idsOf("decode")];
  // How many of each is by times that are measured here; both sides have one at least.
  expect([prefill.length > 0, decode.length > 0, prefill.length + decode.length]).toEqual([true, true, 4]);
  const reported = (await router.metrics()).sum("espalier_disaggregation_prefill_engines", { model: "tiny" });
  expect(reported).toBe(prefill.length);
  const answers = await Promise.all(Array.from({ length: 12 }, (_, at) => ask(router, longChat(`then ${at}`))));
  for (const { status, engines } of answers) {
    expect(status).toBe(200);
    expect(prefill).toContain(engines[0]);
    expect(decode).toContain(engines[1]);
  }
  const short = await ask(router, { model: "tiny", messages: [{ role: "user", content: "hi" }], max_tokens: 2 });
  expect(short.engines[0]).toBe("-");
  expect(decode).toContain(short.engines[1]);
  await nothingLeaks(router, sims);

  await router.admin("PATCH", `/admin/engines/${encodeURIComponent(decode[0]!)}`, { draining: true });
  await waitFor(
    async () => {
      expect((await ask(router, longChat("without it"))).status).toBe(200);
      clock.leap(1_000);
      return (await idsOf("decode")).some((id) => id !== decode[0]);
    },
    { what: "another engine that answers" },
  );
  await nothingLeaks(router, sims);
});
