import { afterEach, expect, test } from "vitest";
import { chat, post } from "./client.ts";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

// SGLang 0.5.23 answers GET /health after a second of sleep, and the default timeout was a second: 2 of 3 routers never
// had an engine. Mechanism: a default of ours that meets a default of an engine at the same value.
test("with default settings, engines whose health check takes a second come up, stay up and serve", async () => {
  const sims = await rig.sims(2, { parameters: { flavour: "sglang" }, speed: 1, behaviours: ["sglang-0.5.23"] });
  const router = await rig.router({ engines: sims.map(({ url }) => url), config: { health: {} } });
  const untilMs = performance.now() + 6_000;
  let asked = 0;
  while (performance.now() < untilMs) {
    const answer = await post(
      `${router.url}/v1/chat/completions`,
      chat({ messages: [{ role: "user", content: `question ${asked++}` }] }),
    );
    expect(answer.status).toBe(200);
  }
  expect((await router.engines()).map(({ state }) => state)).toEqual(["up", "up"]);
  const page = await router.metrics();
  expect(page.sum("espalier_engine_health_probes_total", { outcome: "ok" })).toBeGreaterThan(2);
  expect(page.sum("espalier_engine_health_probes_total", { outcome: "timeout" })).toBe(0);
});
