import { afterEach, expect, test } from "vitest";
import { chat, errorOf, post } from "./client.ts";
import { jsonEngine } from "./engines.ts";
import { createRig } from "./rig.ts";

/*
 * Clients could drive the transfer of KV blocks: fields and headers by which a router tells an engine whose blocks to
 * fetch passed through, so that an engine connected to an address of the client's choice.
 */
const rig = createRig();
afterEach(() => rig.close());

const headers = {
  "x-data-parallel-rank": "1",
  "x-prefiller-host-port": "10.0.0.1:80",
  "x-override-bootstrap-host": "10.0.0.1",
  "x-kept": "yes",
};
const id = "cmpl-___prefill_addr_10.0.0.1:80___decode_addr_10.0.0.2:80_1";

test("fields by which engines fetch blocks are refused, headers taken out, and ids with addresses replaced", async () => {
  const engine = await jsonEngine(rig, "{}");
  const config = { "forward-paths": ["/v1/audio/*"] };
  const router = await rig.router({ engines: [engine.url], config });
  for (const path of ["/v1/chat/completions", "/v1/messages", "/generate"]) {
    const body = chat({
      prompt: "x",
      text: "x",
      kv_transfer_params: { do_remote_prefill: true, remote_host: "10.0.0.1" },
    });
    const answer = await post(router.url + path, body);
    expect(answer.status, path).toBe(400);
    expect(answer.text).toContain("kv_transfer_params");
  }
  expect(errorOf(await post(`${router.url}/v1/chat/completions`, chat({ bootstrap_host: "10.0.0.1" })))).toMatchObject({
    ...{ code: "reserved_field", param: "bootstrap_host" },
  });
  const speech = `${router.url}/v1/audio/speech`;
  const form =
    '--b\r\ncontent-disposition: form-data; name="vllm_xargs"\r\n\r\n{"kv_transfer_params":"x"}\r\n--b--\r\n';
  for (const [body, type] of [
    [chat({ vllm_xargs: { kv_transfer_params: "x" } }), "application/json"],
    [{ sampling_params: { extra_args: { kv_transfer_params: {} } } }, "application/json"],
    [JSON.stringify({ pad: "x".repeat(2_000_000), kv_transfer_params: {} }), "application/json"],
    [form, "multipart/form-data; boundary=b"],
  ] as const) {
    for (const more of [{}, { "x-espalier-model": "tiny" }]) {
      expect(errorOf(await post(speech, body, { "content-type": type, ...more })).code).toBe("reserved_field");
    }
  }
  expect(errorOf(await post(speech, "(compressed)", { "x-body-compressed": "zstd" })).code).toBe(
    "unsupported_encoding",
  );
  expect(engine.requests).toEqual([]);

  for (const path of ["/v1/chat/completions", "/v1/audio/speech"]) {
    expect(
      (await post(router.url + path, chat({ bootstrap_host: null }), { ...headers, "x-request-id": id })).status,
    ).toBe(200);
    const seen = engine.requests.at(-1)!.headers;
    expect(seen).toMatchObject({ "x-kept": "yes", "x-request-id": expect.stringMatching(/^req-[0-9a-f]{24}$/) });
    expect(seen).not.toHaveProperty("x-data-parallel-rank");
    expect(seen).not.toHaveProperty("x-prefiller-host-port");
    expect(seen).not.toHaveProperty("x-override-bootstrap-host");
  }
});

test("with trust-transfer-fields all of it passes through", async () => {
  const engine = await jsonEngine(rig, "{}");
  const router = await rig.router({ engines: [engine.url], config: { "trust-transfer-fields": true } });
  const body = chat({ kv_transfer_params: { remote_host: "10.0.0.1" } });
  expect((await post(`${router.url}/v1/chat/completions`, body, { ...headers, "x-request-id": id })).status).toBe(200);
  expect(engine.requests[0]!.headers).toMatchObject({ ...headers, "x-request-id": id });
  expect(JSON.parse(engine.requests[0]!.body.toString())).toMatchObject({
    kv_transfer_params: { remote_host: "10.0.0.1" },
  });
});
