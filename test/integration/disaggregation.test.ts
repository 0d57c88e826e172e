import { type KvTransferProtocol, kvTransferProtocols } from "@espalier/core";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { chat, eventData, type Json, post } from "./client.ts";
import { ask, countOf, longChat, nothingLeaks, pairRouter, pairSims } from "./disaggregation-rig.ts";
import { httpEngine } from "./engines.ts";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/** Those that the simulated engines speak. */
const simulated = kvTransferProtocols.filter((protocol) => protocol !== "llm-d-sidecar");

test.each(simulated)("%s: one engine computes the prompt, another one answers", async (protocol) => {
  const sims = await pairSims(rig, { protocol, roles: ["prefill", "decode"] });
  const [prefill, decode] = sims;
  const router = await pairRouter(rig, sims);

  const whole = await ask(router, longChat("a"));
  expect([whole.status, whole.engines]).toEqual([200, [prefill!.id, decode!.id]]);
  expect(whole.json.usage).toMatchObject({ completion_tokens: 6 });
  const stream = await ask(router, longChat("b", { stream: true }));
  expect([stream.status, stream.engines]).toEqual([200, [prefill!.id, decode!.id]]);
  expect(eventData(stream.text).at(-1)).toBe("[DONE]");

  const { totals } = await decode!.transfers();
  expect(totals.imported).toBe(2);
  expect(totals.importedTokens).toBeGreaterThan(600);
  await nothingLeaks(router, sims);
  expect(await countOf(router, "disaggregated", decodesAlone.has(protocol) ? "threshold" : "required")).toBe(2);
  const page = await router.metrics();
  expect(page.sum("espalier_disaggregation_prefill_seconds_count")).toBe(2);
  expect(page.sum("espalier_disaggregation_advised_prefill_engines")).toBe(1);
});

/** Whose decode engines can also do without a prefill engine. */
const decodesAlone = new Set<KvTransferProtocol>(["nixl", "mooncake", "shared-storage", "trtllm"]);

test.each([...decodesAlone])("%s: a short prompt is answered by one engine", async (protocol) => {
  const sims = await pairSims(rig, { protocol, roles: ["prefill", "decode"] });
  const router = await pairRouter(rig, sims);
  const answer = await ask(router, chat());
  expect([answer.status, answer.engines]).toEqual([200, ["-", sims[1]!.id]]);
  expect(await countOf(router, "aggregated", "below_threshold")).toBe(1);
  expect(await sims[0]!.requests()).toEqual([]);
  await nothingLeaks(router, sims);
});

test("a prompt that the decode engine holds is not computed again", async () => {
  const sims = await pairSims(rig, { protocol: "nixl", roles: ["prefill", "decode"] });
  const router = await pairRouter(rig, sims);
  const first = await ask(router, longChat("a"));
  const second = await ask(router, longChat("a"));
  expect([first.engines[0], second.engines[0]]).toEqual([sims[0]!.id, "-"]);
  expect(Number(second.headers["x-espalier-cache-hit-tokens"])).toBeGreaterThan(300);
  await nothingLeaks(router, sims);
});

test("shared storage: a decode engine that finds the prompt in the store needs no prefill engine", async () => {
  const roles = ["prefill", "decode", "decode"] as const;
  const sims = await pairSims(rig, { protocol: "shared-storage", roles });
  const router = await pairRouter(rig, sims, { policy: "round_robin" });
  const answers = [];
  for (let index = 0; index < 4; index++) answers.push(await ask(router, longChat("a", { stream: index % 2 === 1 })));
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  expect(answers.map(({ engines }) => engines[0])).toEqual([sims[0]!.id, "-", "-", "-"]);
  expect(await countOf(router, "aggregated", "cached")).toBe(3);
  await nothingLeaks(router, sims);
});

test("what cannot be split is served by one engine", async () => {
  const sims = await pairSims(rig, { protocol: "nixl", roles: ["prefill", "decode"] });
  const router = await pairRouter(rig, sims);
  for (const [at, fields] of [{ n: 2 }, { max_tokens: 1 }, { kv_transfer_params: null }].entries()) {
    const answer = await ask(router, longChat(`story ${at}`, fields));
    expect([answer.status, answer.engines]).toEqual([200, ["-", sims[1]!.id]]);
  }
  expect(await countOf(router, "aggregated", "unsupported")).toBe(3);
  await nothingLeaks(router, sims);
});

test("engines of both roles pair up where the protocol lets them", async () => {
  const sims = await pairSims(rig, { protocol: "nixl", roles: ["both", "both"] });
  const router = await pairRouter(rig, sims);
  const { status, engines } = await ask(router, longChat("a"));
  expect([status, new Set(engines)]).toEqual([200, new Set(sims.map(({ id }) => id))]);
  await nothingLeaks(router, sims);
});

test("the same request id reaches both engines, and neither the client's choice of a stream nor of usage the first", async () => {
  const sims = await pairSims(rig, { protocol: "nixl", roles: ["prefill", "decode"] });
  const router = await pairRouter(rig, sims);
  const answer = await ask(router, longChat("a", { stream: true, stream_options: { include_usage: true } }));
  const usage = eventData(answer.text).at(-2) ?? "";
  expect(JSON.parse(usage).usage).toMatchObject({ completion_tokens: 6 });
  const ids = (await Promise.all(sims.map((sim) => sim.requests()))).map(([seen]) => seen?.headers["x-request-id"]);
  expect(ids).toEqual([answer.headers["x-request-id"], answer.headers["x-request-id"]]);
});

test("many at once", async () => {
  const sims = await pairSims(rig, { protocol: "sglang", roles: ["prefill", "prefill", "decode", "decode"] });
  const router = await pairRouter(rig, sims);
  const answers = await Promise.all(Array.from({ length: 24 }, (_, at) => ask(router, longChat(`story ${at}`))));
  expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
  expect(new Set(answers.flatMap(({ engines }) => engines))).toEqual(new Set(sims.map(({ id }) => id)));
  await nothingLeaks(router, sims);
});

test("behind llm-d's sidecars the decode engine is asked alone, and both engines count as busy until it answers", async () => {
  const answers: (() => void)[] = [];
  const prefill = await httpEngine(rig, () => {});
  const decode = await httpEngine(rig, ({ response }) => {
    answers.push(() => response.writeHead(200, { "content-type": "application/json" }).end("{}"));
  });
  const entry = (url: string, role: string): Json => ({ url, role, "kv-transfer": "llm-d-sidecar" });
  const router = await rig.router({
    engines: [entry(prefill.url, "prefill"), entry(decode.url, "decode")],
    config: { disaggregation: { "threshold-tokens": 1_000 } },
  });
  const asked = post(
    `${router.url}/v1/chat/completions`,
    chat({ messages: [{ role: "user", content: "x".repeat(40_000) }] }),
  );
  await waitFor(() => answers.length === 1, { what: "the request at the decode engine" });
  const busy = async () => (await router.engines()).map(({ targets }) => targets[0]!.load.in_flight);
  expect(await busy()).toEqual([1, 1]);
  answers[0]!();
  const answer = await asked;
  expect(answer.headers).toMatchObject({ "x-espalier-engine": decode.id, "x-espalier-prefill-engine": prefill.id });
  expect(decode.requests[0]!.headers["x-prefiller-host-port"]).toBe(prefill.id);
  expect(prefill.requests).toEqual([]);
  await router.untilIdle();
});
