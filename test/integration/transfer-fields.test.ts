import { endpoints } from "@espalier/api";
import { renderReservedDocs } from "@espalier/routing";
import { afterEach, expect, test } from "vitest";
import { call, chat, errorOf, post } from "./client.ts";
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

/** The names in a section of the page that lists them. */
function listed(section: string): readonly string[] {
  const text = renderReservedDocs()
    .split("\n## ")
    .find((each) => each.startsWith(section))!;
  return [...text.matchAll(/^\| `([^`]+)`/gm)].map(([, name]) => name!);
}

/** A prompt for every endpoint. */
const anyPrompt = {
  prompt: "x",
  text: "x",
  input: "x",
  query: "x",
  documents: ["x"],
  text_1: "x",
  text_2: "x",
  tokens: [1],
  token_ids: [1],
};

test("every field of the list is refused at every path, in small and in large bodies", async () => {
  const engine = await jsonEngine(rig, "{}");
  const router = await rig.router({ engines: [engine.url], config: { "forward-paths": ["/v1/audio/*"] } });
  const inside = ["vllm_xargs", "sampling_params.extra_args"];
  const names = listed("Fields").map((name) => (inside.includes(name) ? `${name}.kv_hints` : name));
  expect(names).toEqual(expect.arrayContaining(["encoder_urls", ...inside.map((name) => `${name}.kv_hints`)]));
  for (const path of [...endpoints.map((endpoint) => endpoint.path), "/v1/audio/voices"]) {
    const refusedFor = async (name: string, more = {}): Promise<string | undefined> => {
      const set = name.split(".").reduceRight<unknown>((value, part) => ({ [part]: value }), "x") as object;
      const { status, text } = await post(router.url + path, { ...chat(anyPrompt), ...more, ...set });
      return status === 400 ? /Only a router may set the field (\S+?)\."/.exec(text)?.[1] : undefined;
    };
    const refused: (string | undefined)[] = [];
    for (const name of names) refused.push(await refusedFor(name));
    expect([path, refused]).toEqual([path, names]);
    expect([path, await refusedFor("kv_hints", { pad: "x".repeat(2_000_000) })]).toEqual([path, "kv_hints"]);
  }
  expect(engine.requests).toEqual([]);
});

test("no header of the list reaches an engine, with a body, forwarded, or for a stored response", async () => {
  const engine = await jsonEngine(rig, "{}");
  const router = await rig.router({ engines: [engine.url], config: { "forward-paths": ["/v1/audio/*"] } });
  const names = listed("Headers");
  expect(names).toEqual(expect.arrayContaining(["x-vllm-priority", "x-override-rid", "x-prefiller-url"]));
  const sent = Object.fromEntries([...names, "x-kept"].map((name) => [name.toUpperCase(), "1"]));
  for (const path of ["/v1/chat/completions", "/v1/audio/voices"]) await post(router.url + path, chat(), sent);
  await call(`${router.url}/v1/responses/resp_1`, { headers: sent });
  const got = engine.requests.filter(({ headers }) => headers["x-kept"] === "1");
  expect(got.map(({ path }) => path)).toEqual(["/v1/chat/completions", "/v1/audio/voices", "/v1/responses/resp_1"]);
  for (const { headers } of engine.requests) expect(names.filter((name) => headers[name] !== undefined)).toEqual([]);
});

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
  const voices = `${router.url}/v1/audio/voices`;
  const form =
    '--b\r\ncontent-disposition: form-data; name="vllm_xargs"\r\n\r\n{"kv_transfer_params":"x"}\r\n--b--\r\n';
  for (const [body, type] of [
    [chat({ vllm_xargs: { kv_transfer_params: "x" } }), "application/json"],
    [{ sampling_params: { extra_args: { kv_transfer_params: {} } } }, "application/json"],
    [JSON.stringify({ pad: "x".repeat(2_000_000), kv_transfer_params: {} }), "application/json"],
    [form, "multipart/form-data; boundary=b"],
  ] as const) {
    for (const more of [{}, { "x-espalier-model": "tiny" }]) {
      expect(errorOf(await post(voices, body, { "content-type": type, ...more })).code).toBe("reserved_field");
    }
  }
  expect(errorOf(await post(voices, "(compressed)", { "x-body-compressed": "zstd" })).code).toBe(
    "unsupported_encoding",
  );
  expect(engine.requests).toEqual([]);

  for (const path of ["/v1/chat/completions", "/v1/audio/voices"]) {
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
