import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { chat, type Json, post } from "./client.ts";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/*
 * llama.cpp puts `timings` into the chunk with the usage that the router asks for, and takes `max_tokens: -1` for no limit. The
 * chunk was dropped whole, and the request was refused with 400.
 */
test("answers of llama.cpp reach the client with their timings, and without usage that it did not ask for", async () => {
  const [sim] = await rig.sims(1, { behaviours: ["llama.cpp-00efb3e"] });
  const router = await rig.router({ engines: [sim!.url] });
  const { status, text } = await post(
    `${router.url}/v1/chat/completions`,
    chat({ max_tokens: -1, stream: true, ignore_eos: true }),
  );
  expect(status).toBe(200);
  const events = text.trimEnd().split("\n\n");
  expect(events.at(-1)).toBe("data: [DONE]");
  const chunks = events.slice(0, -1).map((event) => JSON.parse(event.slice("data: ".length)) as Json);
  expect(chunks.length).toBeGreaterThan(16);
  expect(chunks.filter((chunk) => "timings" in chunk)).toHaveLength(1);
  expect(chunks.at(-1)).toMatchObject({ choices: [{ finish_reason: "length" }], timings: { cache_n: 0 } });
  expect(chunks.some((chunk) => "usage" in chunk)).toBe(false);
});

test("an engine that loads its model is starting, with the status as its reason, and serves once it has loaded", async () => {
  const [sim] = await rig.sims(1, { behaviours: ["llama.cpp-00efb3e"] });
  const fault = { kind: "unhealthy", path: "/health", count: 3 };
  await fetch(`${sim!.url}/sim/faults`, { method: "POST", body: JSON.stringify(fault) });
  const router = await rig.router({ engines: [sim!.url], usable: 0 });
  const engine = async () => ((await router.admin("GET", "/admin/engines")).json.engines as readonly Json[])[0]!;
  await waitFor(async () => /status 503/.test(String((await engine()).reason)), { what: "a reason" });
  expect((await engine()).state).toBe("starting");
  await waitFor(async () => (await engine()).state === "up", { what: "the engine" });
  expect((await post(`${router.url}/v1/chat/completions`, chat())).status).toBe(200);
});
