import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import {
  type CompiledConfig,
  createRouter,
  type HookAnswer,
  type HookDecision,
  type HookRequest,
  loadConfig,
  loadPlugins,
} from "@espalier/server";
import { createRecordingLogger, waitFor } from "@espalier/testing";
import { afterEach, describe, expect, onTestFinished, test } from "vitest";
import { chat, post, rawConnection, rawPost } from "./client.ts";
import { jsonEngine } from "./engines.ts";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const usage = { prompt_tokens: 11, completion_tokens: 2, prompt_tokens_details: { cached_tokens: 8 } };
const ask = (router: { url: string }, headers = {}, fields = {}) =>
  post(`${router.url}/v1/chat/completions`, chat(fields), headers);
const engine = (waiting = 0) =>
  jsonEngine(rig, JSON.stringify({ usage }), {
    metrics: () => `vllm:num_requests_running 0\nvllm:num_requests_waiting ${waiting}\n`,
  });

/** A configuration's file in a folder of its own, with plugins beside it. */
function configOf(text: string, files: Readonly<Record<string, string>> = {}): CompiledConfig {
  const folder = mkdtempSync(join(tmpdir(), "espalier-plugins-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content);
  return loadConfig({ file: { path: join(relative(".", folder), "espalier.yaml"), text } });
}

const shortQueue = fileURLToPath(new URL("../../examples/plugins/short-queue.mjs", import.meta.url));

test("a router started from its file routes by the policy of its plugin", async () => {
  const [long, short] = [await engine(9), await engine()];
  const text = `
    listen: { port: 0 }
    admin: { port: 0 }
    engines: ["${long.url}", "${short.url}"]
    plugins: ["./short-queue.mjs"]
    policy: round_robin
    pools: [{ models: ["tiny"], policy: short_queue }]
  `;
  const config = configOf(text, { "short-queue.mjs": `export * from ${JSON.stringify(shortQueue)};` });
  const router = createRouter({ config, logger: createRecordingLogger(), ...(await loadPlugins(config.plugins)) });
  rig.own(() => router.stop());
  await router.start();
  const explain = async () => (await post(`${router.adminUrl}/admin/explain`, chat())).json as unknown as Explained;
  // Both engines are known, with what they report.
  await waitFor(async () => (await explain()).candidates?.every(({ signals }) => signals.waiting !== null), {
    what: "reports of both engines",
  });
  expect(await explain()).toMatchObject({
    policy: "short_queue",
    reason: "least_cost",
    weights: { queue: 1, requests: 0.1 },
  });
  for (let sent = 0; sent < 4; sent++) expect((await ask(router)).headers["x-espalier-policy"]).toBe("short_queue");
  expect([long.requests.length, short.requests.length]).toEqual([0, 4]);
});

interface Explained {
  readonly candidates?: readonly { readonly signals: Readonly<Record<string, number | null>> }[];
}

const scorerThat = (body: string): string =>
  `export const policies = { mine: { terms: [{ weight: 1, scorer: { name: "s", score({ candidates, eligible }, out) { ${body} } } }] } };`;

describe("a plugin that is broken is refused with what to do", () => {
  test.each<readonly [string, string | undefined, RegExp]>([
    ["that is not there", undefined, /file not found; relative paths start at the configuration file's folder/],
    ["with a mistake", "export const = 1;", /cannot be loaded: .*; run `node .*broken.mjs` for details/],
    ["that throws", 'throw new Error("no database");', /cannot be loaded: no database/],
    ["without what is used", "export default {};", /exports neither `policies` nor `hooks`; add a named export/],
    [
      "with a policy of ours",
      "export const policies = { random: { terms: [] } };",
      /policy random: name of a built-in policy/,
    ],
    [
      "with an unknown scorer",
      'export const policies = { a: { terms: [{ scorer: "speed", weight: 1 }] } };',
      /policy a: terms\[0\].scorer must be/,
    ],
    ["whose scorer throws", scorerThat('throw new Error("oh");'), /policy mine: throws oh \(run 0, seed 1\)/],
    ["whose scorer changes signals", scorerThat("candidates.waiting[0] = 1;"), /policy mine: changes the candidates/],
    [
      "with another hook",
      "export const hooks = { onEnd() {} };",
      /hooks.onEnd is not one of onRequest, onDecision, onAnswer/,
    ],
    ["with a hook that is none", "export const hooks = { onAnswer: 1 };", /hooks.onAnswer must be a function/],
  ])("one %s", async (_, source, message) => {
    const config = configOf('plugins: ["broken.mjs"]', source === undefined ? {} : { "broken.mjs": source });
    const loading = loadPlugins(config.plugins);
    await expect(loading).rejects.toMatchObject({ code: "plugin_invalid", message: expect.stringMatching(message) });
    await expect(loading).rejects.toThrow(/^plugins: \/.*broken.mjs: /);
  });

  test("and so is a policy that no plugin has, with those that there are", async () => {
    const config = configOf('{ plugins: ["a.mjs"], policy: short_que }', {
      "a.mjs": `export * from ${JSON.stringify(shortQueue)};`,
    });
    const plugins = await loadPlugins(config.plugins);
    expect(() => createRouter({ config, logger: createRecordingLogger(), ...plugins })).toThrow(
      /policy: "short_que" is not one of .*, short_queue$/,
    );
  });
});

test("hooks see each request, its decision and its end, and set headers that engines and router read", async () => {
  const engines = [await engine(), await engine()];
  const seen: { requests: HookRequest[]; decisions: HookDecision[]; answers: HookAnswer[] } = {
    requests: [],
    decisions: [],
    answers: [],
  };
  const router = await rig.router({
    engines: engines.map(({ url }) => url),
    config: { policy: "consistent_hashing" },
    extensions: {
      hooks: {
        onRequest(request) {
          seen.requests.push(request);
          return { headers: { "X-Espalier-Session-Id": "one session", "x-team": "blue" } };
        },
        onDecision: (decision) => seen.decisions.push(decision),
        onAnswer: async (answer) => seen.answers.push(answer),
      },
    },
  });
  for (let sent = 0; sent < 6; sent++) {
    await ask(router, { "x-request-id": `r${sent}`, "x-espalier-session-id": `another ${sent}`, "x-team": "red" });
  }
  const used = engines.flatMap(({ requests }) => requests);
  expect(engines.map(({ requests }) => requests.length).sort()).toEqual([0, 6]);
  expect(
    used.every(({ headers }) => headers["x-team"] === "blue" && headers["x-espalier-session-id"] === undefined),
  ).toBe(true);
  expect(seen.requests[5]).toMatchObject({
    requestId: "r5",
    method: "POST",
    url: "/v1/chat/completions",
    keyName: undefined,
  });
  expect(JSON.parse(Buffer.from(seen.requests[5]!.body!).toString())).toMatchObject({ model: "tiny" });
  const decided = { requestId: "r5", model: "tiny", policy: "consistent_hashing", reason: "hash", attempt: 1 };
  expect(seen.decisions[5]).toMatchObject(decided);
  await waitFor(() => seen.answers.length === 6, { what: "the ends of all requests" });
  expect(seen.answers[5]).toMatchObject({
    ...{
      requestId: "r5",
      model: "tiny",
      status: 200,
      error: undefined,
      attempts: 1,
      engine: seen.decisions[5]!.engine,
    },
    ...{ promptTokens: 11, cachedTokens: 8, completionTokens: 2 },
  });
  await ask(router, { "x-request-id": "r6" }, { model: "unknown" });
  expect(seen.answers[6]).toMatchObject({ requestId: "r6", status: 404, error: "model_not_found", engine: undefined });
});

test("hooks that throw or hang lose no request; they are counted, and logged once in a while", async () => {
  const throws = (): never => {
    throw new Error("a defect of a hook");
  };
  const router = await rig.router({
    engines: [(await engine()).url],
    extensions: {
      hooks: [
        { onRequest: throws, onDecision: () => Promise.reject(new Error("later")), onAnswer: throws },
        { onRequest: () => new Promise(() => {}), onDecision: () => new Promise(() => {}) },
        { onRequest: () => ({ headers: { "content-length": "7" } }) },
      ],
    },
  });
  const answers = await Promise.all([1, 2, 3].map(() => ask(router)));
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
  const failures = await waitFor(
    async () => {
      const page = await router.metrics();
      const of = (hook: string, outcome: string) => page.sum("espalier_hook_failures_total", { hook, outcome });
      const counts = [
        of("onRequest", "threw"),
        of("onRequest", "timed_out"),
        of("onDecision", "threw"),
        of("onAnswer", "threw"),
      ];
      return of("onDecision", "timed_out") === 3 && counts;
    },
    { what: "hooks that hang to be counted" },
  );
  expect(failures).toEqual([6, 3, 3, 3]);
  const logged = router.lines.filter(({ message }) => message.startsWith("hook failed"));
  expect(new Set(logged.map(({ fields }) => fields.hook)).size).toBe(logged.length);
});

test("auth decides who may ask, in place of keys; where it fails, nobody passes", async () => {
  const serving = await engine();
  const names: (string | undefined)[] = [];
  const router = await rig.router({
    engines: [serving.url],
    config: { "api-keys": [{ name: "a", key: "not-asked" }] },
    extensions: {
      async auth({ headers }) {
        if (headers["x-user"] === "broken") throw new Error("no directory");
        return headers["x-user"] === undefined ? undefined : { name: String(headers["x-user"]) };
      },
      hooks: {
        onRequest({ keyName }) {
          names.push(keyName);
          return undefined;
        },
      },
    },
  });
  expect((await ask(router, { "x-user": "ada", authorization: "Bearer of-auth" })).status).toBe(200);
  expect(names).toEqual(["ada"]);
  expect(serving.requests[0]!.headers.authorization).toBeUndefined();
  expect(await ask(router, { authorization: "Bearer not-asked" })).toMatchObject({ status: 401 });
  const failed = await ask(router, { "x-user": "broken" });
  expect(failed).toMatchObject({ status: 503, json: { error: { code: "auth_failed" } } });
  expect(await ask(router, { "x-user": "x".repeat(129) })).toMatchObject({ status: 503 });
  expect(serving.requests).toHaveLength(1);
});

test("a client that leaves while auth decides is not counted for ever", async () => {
  const serving = await engine();
  const [asked, decided] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const router = await rig.router({
    engines: [serving.url],
    extensions: {
      async auth() {
        asked.resolve();
        await decided.promise;
        return { name: "ada" };
      },
    },
  });
  const { port } = new URL(router.url);
  const client = await rawConnection(Number(port));
  client.write(rawPost("/v1/chat/completions", JSON.stringify(chat())));
  await asked.promise;
  client.socket.resetAndDestroy();
  const open = async () => (await router.metrics()).sum("espalier_open_connections", { listener: "clients" });
  await waitFor(async () => (await open()) === 0, { what: "the end of the connection" });
  decided.resolve();
  // Answered after the one that left was let in.
  expect((await ask(router)).status).toBe(200);
  await router.untilIdle();
  expect(serving.requests).toHaveLength(1);
});

test("a policy that fails while the router serves is replaced by the fewest requests, counted and logged", async () => {
  let isBroken = false;
  const score = (_: unknown, out: Float64Array): void => {
    if (isBroken) throw new Error("it broke later");
    out.fill(0);
  };
  const router = await rig.router({
    engines: [(await engine()).url, (await engine()).url],
    config: { policy: "mine" },
    extensions: { policies: { mine: { terms: [{ scorer: { name: "zero", score }, weight: 1 }] } } },
  });
  isBroken = true;
  for (let sent = 0; sent < 3; sent++) expect((await ask(router)).status).toBe(200);
  const page = await router.metrics();
  expect(page.sum("espalier_decisions_total", { policy: "mine", reason: "policy_failed" })).toBe(3);
  expect(router.lines.filter(({ message }) => message.startsWith("policy failed"))).toHaveLength(1);
});
