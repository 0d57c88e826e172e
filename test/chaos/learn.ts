import { waitFor } from "@espalier/testing";
import { expect } from "vitest";
import type { Fleet } from "./fleet.ts";
import { haveEqualFacts } from "./mesh-views.ts";
import { startTraffic } from "./traffic.ts";

/** Sends requests until all routers know some facts, and the same ones. */
export async function learn({ routers }: Fleet, answers = 20): Promise<void> {
  const traffic = startTraffic({ routers: () => routers });
  await waitFor(() => traffic.completed >= answers, { what: "answers", deadlineMs: 20_000 });
  await traffic.stop();
  expect(traffic.failures).toEqual([]);
  await waitFor(() => haveEqualFacts(routers), { what: "equal facts", deadlineMs: 10_000 });
}
