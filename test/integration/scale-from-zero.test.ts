import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { chat, errorOf, openPost, post } from "./client.ts";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const heldPool = (hold: string) => ({ pools: [{ models: ["tiny"], "scale-from-zero": { hold } }] });

test("a request that finds no engine waits for the first one; other models are answered as ever", async () => {
  const router = await rig.router({ config: heldPool("60s") });
  expect((await router.admin("GET", "/readyz")).status).toBe(200);
  const url = `${router.url}/v1/chat/completions`;
  const waiting = openPost(url, chat({ stream: true }));
  await waitFor(async () => (await router.metrics()).sum("espalier_admission_cold_start_requests") === 1, {
    what: "the request to wait",
  });
  expect((await post(url, chat({ model: "other" }))).status).toBe(503);
  const [engine] = await rig.sims(1);
  await router.admin("POST", "/admin/engines", { url: engine!.url });
  const head = await waiting.head;
  expect(head.statusCode).toBe(200);
  expect(head.headers["x-espalier-engine"]).toBe(engine!.id);
  expect(Number(head.headers["x-espalier-queued-ms"])).toBeGreaterThan(0);
  expect((await waiting.body).toString()).toContain("[DONE]");
  expect((await router.metrics()).sum("espalier_admission_cold_start_requests")).toBe(0);
});

test("without an engine in time it is answered with 503 and Retry-After, and the router goes on", async () => {
  const router = await rig.router({ config: heldPool("200ms") });
  const url = `${router.url}/v1/chat/completions`;
  const answer = await post(url, chat());
  expect(answer.status).toBe(503);
  expect(errorOf(answer)).toMatchObject({ code: "no_engine_available" });
  expect(answer.headers["retry-after"]).toBe("1");
  const [engine] = await rig.sims(1);
  await router.admin("POST", "/admin/engines", { url: engine!.url });
  await waitFor(async () => (await post(url, chat())).status === 200, { what: "an answer" });
});
