import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { cacheRouter, publishingSims, untilFeed } from "./cache-rig.ts";
import { chat, post } from "./client.ts";
import { httpEngine } from "./engines.ts";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

interface Row {
  readonly targets: readonly { readonly signals: { readonly running: number | null } }[];
}

/*
 * With `--data-parallel-hybrid-lb` the second node of vLLM has the ranks 4 to 7. It was asked for 0 to 3, which it refuses,
 * and none of its ranks' numbers was read. SGLang's `/generate` takes the rank in the body, and got it in a header only.
 */
test("ranks that begin at 4 are asked for by their own numbers, `/generate` in the body, and their load is read", async () => {
  const page = [4, 5].map((rank) => `vllm:num_requests_running{engine="${rank}"} ${rank}\n`).join("");
  const engine = await httpEngine(rig, ({ response }) => response.end("{}"), { metrics: () => page });
  const router = await rig.router({ engines: [{ url: engine.url, ranks: 2 }] });
  const signals = async () => {
    const { json } = await router.admin("GET", "/admin/engines");
    return (json.engines as readonly Row[])[0]!.targets.map(({ signals: { running } }) => running);
  };
  await waitFor(async () => String(await signals()) === "4,5", { what: "the load of both ranks" });
  for (let at = 0; at < 8; at++) await post(`${router.url}/v1/chat/completions`, chat());
  const asked = engine.requests.map(({ headers }) => headers["x-data-parallel-rank"]);
  expect([...new Set(asked)].sort()).toEqual(["4", "5"]);
  await post(`${router.url}/generate`, { text: "hello", sampling_params: { max_new_tokens: 1 } });
  const { headers, body } = engine.requests.at(-1)!;
  expect(JSON.parse(body.toString())).toEqual({
    text: "hello",
    sampling_params: { max_new_tokens: 1 },
    routed_dp_rank: Number(headers["x-data-parallel-rank"]),
  });
});

test("the KV events of a second node are read, though its only rank is 4", async () => {
  const sims = await publishingSims(rig, 1, { behaviours: ["vllm-0.32.0:second-node-ranks"] });
  const router = await cacheRouter(rig, sims);
  await untilFeed(router, sims[0]!, "live nothing-published");
  expect((await post(`${router.url}/v1/chat/completions`, chat())).status).toBe(200);
});
