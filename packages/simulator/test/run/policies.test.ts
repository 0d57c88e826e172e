import { policyNames } from "@espalier/policies";
import { expect, test, vi } from "vitest";
import type { SimRequest } from "../../src/clients/workload.ts";
import { nearRivalNames } from "../../src/rivals/rivals.ts";
import { simulate } from "../../src/simulate.ts";
import { smallRun, smallScenario } from "./small-scenario.ts";

// Takes half a second of a core, which busy machines make ten of.
vi.setConfig({ testTimeout: 60_000 });

test.each([...policyNames, ...nearRivalNames])(
  "two routers with %s answer all that is sent, and use every engine",
  async (policy) => {
    const sent: SimRequest[] = [];
    const scenario = smallScenario({ durationS: 2, startsPerS: 16, onSend: (request) => sent.push(request) });
    const { results } = await simulate(smallRun({ scenario, policy }), () => 0);
    expect(sent.length).toBeGreaterThan(20);
    expect(results).toHaveLength(sent.length);
    expect(results.filter(({ error }) => error !== undefined)).toEqual([]);
    expect(new Set(results.map(({ engine }) => engine)).size).toBe(4);
  },
);
