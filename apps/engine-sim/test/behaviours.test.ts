import { startEngineSim } from "@espalier/engine-sim";
import { createVirtualTime, waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { startSim } from "./sim-client.ts";

test("a release turns on all its behaviours; what is neither a behaviour nor a release is refused", async () => {
  await startSim({ behaviours: ["sglang-0.5.23"] });
  await expect(startEngineSim({ behaviours: ["sglang-0.5.2"] })).rejects.toThrow(
    /^behaviour must be one of .*or a release$/,
  );
});

test("sglang-0.5.23:health-takes-a-second answers /health after its sleep", async () => {
  const time = createVirtualTime();
  const behaviours = ["sglang-0.5.23:health-takes-a-second"];
  const sim = await startSim({ speed: 1, behaviours, clock: time.clock, scheduler: time.scheduler });
  let isAnswered = false;
  const answer = sim.get("/health").then((health) => {
    isAnswered = true;
    return health.status;
  });
  // Real sockets live outside virtual time.
  await waitFor(() => time.pendingCount === 1, { what: "the sleep" });
  time.advance(1_000);
  expect((await sim.get("/version")).status).toBe(200);
  expect(isAnswered).toBe(false);
  time.advance(1);
  expect(await answer).toBe(200);
});
