import { afterEach, expect, test } from "vitest";
import { call, errorOf, post } from "./client.ts";
import { type HttpEngine, httpEngine } from "./engines.ts";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

function engineOf(...models: string[]): Promise<HttpEngine> {
  return httpEngine(
    rig,
    ({ method, response }) => {
      response.writeHead(200, { "content-type": "text/plain", "content-length": 4 });
      response.end(method === "HEAD" ? undefined : "echo");
    },
    { models },
  );
}

test("a path on the list passes with every method and any body; others do not exist", async () => {
  const engine = await engineOf("tiny");
  const paths = ["/v1/audio/*", "/server_info", "/v1/models/tiny:predict"];
  const router = await rig.router({ engines: [engine.url], config: { "forward-paths": paths } });
  const wav = Buffer.from([0, 255, 1, 254, 13, 10]);

  for (const [method, path] of [
    ["GET", "/server_info?x=1"],
    ["HEAD", "/server_info"],
    ["DELETE", "/v1/audio/voices/7"],
    ["POST", "/v1/audio/transcriptions"],
    ["PUT", "/v1/audio/x/"],
    ["PATCH", "/v1/audio/a%2Fb?c=%20"],
    ["GET", "/v1/models/tiny:predict"],
  ] as const) {
    const hasBody = method === "POST" || method === "PUT" || method === "PATCH";
    const headers = hasBody ? { "content-type": "audio/wav" } : {};
    const answer = await call(router.url + path, { method, headers, body: hasBody ? wav : undefined });
    expect([answer.status, answer.text]).toEqual([200, method === "HEAD" ? "" : "echo"]);
    expect(engine.requests.at(-1)).toMatchObject({ method, path });
    expect(engine.requests.at(-1)?.body.equals(hasBody ? wav : Buffer.alloc(0))).toBe(true);
    expect(answer.headers["x-espalier-engine"]).toBe(engine.id);
  }
  const before = engine.requests.length;
  for (const path of ["/v1/audio", "/server_info/more", "/server_inf", "/v1/audi", "/version", "/metrics"]) {
    expect((await call(router.url + path)).status).toBe(404);
  }
  expect((await call(`${router.url}/v1/models/tinyXpredict`)).status).toBe(404);
  expect(engine.requests).toHaveLength(before);
});

test("the model comes from a header or a JSON body, else there must be only one", async () => {
  const alpha = await engineOf("alpha");
  const beta = await engineOf("beta");
  const config = { "forward-paths": ["/custom/*"], models: { aliases: { b: "beta" } } };
  const router = await rig.router({ engines: [alpha.url, beta.url], config });
  const url = `${router.url}/custom/x`;
  const counts = () => [alpha.requests.length, beta.requests.length];

  await call(url, { headers: { "x-espalier-model": "alpha" } });
  await post(url, { model: "beta" });
  await post(url, { model: "beta" }, { "x-espalier-model": "alpha" });
  await call(url, { headers: { "x-espalier-model": "b" } });
  expect(counts()).toEqual([2, 2]);
  expect(alpha.requests[0]?.headers["x-espalier-model"]).toBeUndefined();

  const untyped = await call(url, { method: "POST", body: '{"model":"beta"}' });
  expect([untyped.status, errorOf(untyped).code]).toEqual([400, "missing_field"]);
  const nameless = await call(url);
  expect([nameless.status, errorOf(nameless)]).toMatchObject([400, { code: "missing_field", param: "model" }]);
  const unknown = await post(url, { model: "gamma" });
  expect([unknown.status, errorOf(unknown).code]).toEqual([404, "model_not_found"]);
  const broken = await post(url, "{");
  expect([broken.status, errorOf(broken).code]).toEqual([400, "invalid_json"]);
  expect(counts()).toEqual([2, 2]);
});

const form = (...fields: readonly (readonly [head: string, value: string])[]): Buffer =>
  Buffer.from(
    `${fields.map(([head, value]) => `--cut\r\nContent-Disposition: form-data; ${head}\r\n\r\n${value}\r\n`).join("")}--cut--\r\n`,
    "latin1",
  );

// Clients that send files name their model in a form, which the router did not read: with several models all were refused.
test("the model comes from a form's field, before or after the file, and the form passes byte for byte", async () => {
  const [alpha, beta] = [await engineOf("alpha"), await engineOf("beta")];
  const config = { "forward-paths": ["/v1/audio/*"], models: { aliases: { b: "beta" } } };
  const router = await rig.router({ engines: [alpha.url, beta.url], config });
  const url = `${router.url}/v1/audio/voices`;
  const file = [
    'name="file"; filename="model.wav"\r\nContent-Type: audio/wav',
    "RIFF\x00\xff\r\n--cu\r\n\r\n",
  ] as const;
  const send = (body: Buffer, type = "multipart/form-data; boundary=cut") =>
    call(url, { method: "POST", headers: { "content-type": type }, body });
  for (const [model, engine] of [
    ["alpha", alpha],
    ["b", beta],
  ] as const) {
    const field = ['name="model"', model] as const;
    for (const body of [form(field, file), form(file, field), form(file, ["name=model", model])]) {
      expect((await send(body, 'Multipart/Form-Data; charset=utf-8; boundary="cut"')).status).toBe(200);
      expect(engine.requests.at(-1)?.body.equals(body)).toBe(true);
    }
  }
  const before = alpha.requests.length + beta.requests.length;
  for (const [body, code] of [
    [form(file), "missing_field"],
    [form(['name="model"', ""]), "missing_field"],
    [form(['name="model"', "alpha"], file, ['name="model"', "beta"]), "duplicate_key"],
    [Buffer.from("no form"), "missing_field"],
  ] as const) {
    const answer = await send(body);
    expect([answer.status, errorOf(answer).code]).toEqual([400, code]);
  }
  const unknown = await send(form(['name="model"', "gamma"]));
  expect([unknown.status, errorOf(unknown).code]).toEqual([404, "model_not_found"]);
  expect(alpha.requests.length + beta.requests.length).toBe(before);
});

test("a path that climbs out of what is listed is refused", async () => {
  const engine = await engineOf("tiny");
  const router = await rig.router({ engines: [engine.url], config: { "forward-paths": ["/custom/*"] } });
  for (const path of ["/custom/../secret", "/custom/%2e%2e/secret", "/custom/a/..", "/custom/%2E./x", "/custom/./x"]) {
    const answer = await call(router.url, { path });
    expect([path, answer.status]).toEqual([path, 404]);
  }
  expect(engine.requests).toEqual([]);
  expect((await call(router.url, { path: "/custom/..a/b..c/..." })).status).toBe(200);
});

// The paths of uploads are registered in a turn of their own: what was said of them was the library's error, without a setting.
const served = ["/v1/models", "/v1/chat/completions", "/health", "/v1/models/*", "/v1/audio/transcriptions"];
test.each([...served.map((path) => [path]), ["/same", "/same"]])(
  "a list with what is served already (%s) is refused at the start",
  async (...paths) => {
    await expect(rig.router({ config: { "forward-paths": paths } })).rejects.toMatchObject({
      code: "config_invalid",
      message: expect.stringContaining(`forward-paths: ${paths[0]}`),
    });
  },
);

test("what is asked of forwarded paths is limited like the rest", async () => {
  const engine = await engineOf("tiny");
  const config = { "forward-paths": ["/custom/*"], limits: { "max-body-bytes": 1_024 } };
  const router = await rig.router({ engines: [engine.url], config });
  const answer = await call(`${router.url}/custom/x`, { method: "POST", body: "x".repeat(1_025) });
  expect([answer.status, errorOf(answer).code]).toEqual([413, "body_too_large"]);
  expect(engine.requests).toEqual([]);
});
