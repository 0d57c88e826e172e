import { shippedModelFolder } from "@espalier/tokenizer";
import { expect, test } from "vitest";
import { registerVerifyTokenizer } from "../src/commands/verify-tokenizer.ts";
import { modelFolder, sendTokens, startFakeEngine, type TokenizeCall } from "./fake-engine.ts";
import { isUsageRefusal, runCommand } from "./run-command.ts";
import { temporaryServer } from "./temporary.ts";

const verify = (url: string, ...more: readonly string[]) =>
  runCommand(registerVerifyTokenizer, "verify-tokenizer", "--model", shippedModelFolder(), "--engine", url, ...more);

interface Report {
  readonly name: string;
  readonly cases: number;
  readonly different: number;
  readonly rows: readonly {
    readonly case: string;
    readonly ok: boolean;
    readonly tokens: number;
    readonly firstDifference?: { readonly at: number; readonly ours?: number; readonly engine?: number };
    readonly error?: string;
  }[];
}

/** An engine that is right but for one kind of prompt, which it answers in its own way. */
async function reportOf(isWrong: (call: TokenizeCall) => boolean, answer: (call: TokenizeCall) => void) {
  const engine = await startFakeEngine({
    answer: (call) => (isWrong(call) ? answer(call) : sendTokens(call.response, call.tokens)),
  });
  const outcome = await verify(engine.url, "--json");
  return { ...outcome, engine, report: JSON.parse(outcome.stdout) as Report };
}

const isCode = ({ request }: TokenizeCall): boolean => request.prompt?.startsWith("def f(x: int)") === true;

test("the same tokens everywhere: one sentence, exit code 0", async () => {
  const { url, asked, paths } = await startFakeEngine();
  const { stdout, stderr, exitCode, error } = await verify(url);
  expect([error, exitCode]).toEqual([undefined, undefined]);
  expect(stdout).toBe(`${asked.length} of ${asked.length} prompts match\n`);
  expect(stderr).toBe(`comparing ${asked.length} prompts with ${url} (tiny), by the rules of vllm-0.32\n`);
  expect(paths[0]).toBe("GET /v1/models");
  expect(new Set(asked.map(({ model }) => model))).toEqual(new Set(["tiny"]));
  expect(asked.filter(({ messages }) => messages !== undefined)).toHaveLength(53);
});

test("a name that is given is asked for, and the engine is not asked for its models", async () => {
  const { url, asked, paths } = await startFakeEngine({ modelsStatus: 500 });
  const { stderr, exitCode } = await verify(`${url}/`, "--name", "org/model:q4");
  expect(exitCode).toBeUndefined();
  expect(stderr).toContain(`with ${url} (org/model:q4)`);
  expect(paths).not.toContain("GET /v1/models");
  expect(new Set(asked.map(({ model }) => model))).toEqual(new Set(["org/model:q4"]));
});

test.each([
  [{ "/server_info": '{"version":"0.5.23"}' }, "sglang-0.5.23"],
  [{ "/server_info": '{"vllm_config":"x"}', "/version": '{"version":"0.25.1"}' }, "vllm-0.23"],
  [{ "/version": '{"version":"0.32.0"}' }, "vllm-0.32"],
  [{ "/version": "<html>" }, "vllm-0.32"],
])("an engine that says %j is compared by the rules of %s", async (says, dialect) => {
  const url = await temporaryServer(({ path, response }) => {
    const body = (says as Readonly<Record<string, string>>)[path];
    response.writeHead(body === undefined ? 404 : 200).end(body);
  });
  expect((await verify(url, "--name", "m")).stderr).toContain(`by the rules of ${dialect}\n`);
});

test.each([
  { where: "first", at: () => 0 },
  { where: "middle", at: (length: number) => Math.floor(length / 2) },
  { where: "last", at: (length: number) => length - 1 },
])("one prompt of which the $where token differs: it is named with both tokens, exit code 1", async ({ at }) => {
  let expected: unknown;
  const { report, exitCode } = await reportOf(isCode, ({ tokens, response }) => {
    const place = at(tokens.length);
    expected = { at: place, ours: tokens[place], engine: 7_777 };
    sendTokens(response, tokens.with(place, 7_777));
  });
  const different = report.rows.filter(({ ok }) => !ok);
  expect(different).toMatchObject([{ case: "code", firstDifference: expected }]);
  expect([report.name, report.different, report.cases, exitCode]).toEqual([
    "verify-tokenizer",
    1,
    report.rows.length,
    1,
  ]);
});

test.each([
  { what: "a token more", change: (tokens: readonly number[]) => [...tokens, 5], side: "engine" },
  { what: "a token less", change: (tokens: readonly number[]) => tokens.slice(0, -1), side: "ours" },
  { what: "no tokens at all", change: () => [], side: "ours" },
] as const)("$what: the difference is where one of them is over", async ({ change, side }) => {
  let length = 0;
  let ours: readonly number[] = [];
  const { report } = await reportOf(isCode, ({ tokens, response }) => {
    ours = tokens;
    const changed = change(tokens);
    length = Math.min(tokens.length, changed.length);
    sendTokens(response, changed);
  });
  const [row] = report.rows.filter(({ ok }) => !ok);
  const difference = side === "engine" ? { at: length, engine: 5 } : { at: length, ours: ours[length] };
  expect(row).toEqual({ case: "code", ok: false, tokens: ours.length, firstDifference: difference });
});

test.each([
  { what: "status 400", answer: { status: 400, body: '{"error":"no"}' }, error: /\/tokenize answered 400$/ },
  { what: "status 404", answer: { status: 404, body: "" }, error: /\/tokenize answered 404$/ },
  { what: "no JSON", answer: { status: 200, body: "<html>" }, error: /JSON/ },
  { what: "no object", answer: { status: 200, body: "[1,2]" }, error: /answered without tokens$/ },
  { what: "null", answer: { status: 200, body: "null" }, error: /answered without tokens$/ },
  { what: "tokens that are text", answer: { status: 200, body: '{"tokens":["a"]}' }, error: /without tokens$/ },
  { what: "fractions", answer: { status: 200, body: '{"tokens":[1.5]}' }, error: /without tokens$/ },
  { what: "negative tokens", answer: { status: 200, body: '{"tokens":[-1]}' }, error: /without tokens$/ },
])(
  "an engine that answers one prompt with $what: that row says why, the others are compared",
  async ({ answer, error }) => {
    const { report, exitCode } = await reportOf(isCode, ({ response }) => {
      response.writeHead(answer.status).end(answer.body);
    });
    const different = report.rows.filter(({ ok }) => !ok);
    expect(different).toEqual([{ case: "code", ok: false, tokens: 0, error: expect.stringMatching(error) }]);
    expect([report.different, exitCode]).toEqual([1, 1]);
  },
);

test("an engine that hangs up on one prompt: the next are asked all the same", async () => {
  const { report } = await reportOf(isCode, ({ response }) => response.destroy());
  expect(report.rows.filter(({ ok }) => !ok)).toMatchObject([{ case: "code", error: expect.any(String) }]);
});

test("a template that the engine has otherwise: only chats differ", async () => {
  const { report } = await reportOf(
    ({ request }) => request.messages !== undefined,
    ({ tokens, response }) => sendTokens(response, tokens.slice(0, -3)),
  );
  const different = report.rows.filter(({ ok }) => !ok).map((row) => row.case);
  expect(different).toHaveLength(53);
  expect(different.every((name) => name.startsWith("chat: "))).toBe(true);
});

test("the table lists differences up to twenty, and counts the rest", async () => {
  let wrong = 0;
  const answerWrongly = (count: number) =>
    startFakeEngine({
      answer: ({ tokens, response }) => sendTokens(response, wrong++ < count ? [9_999, ...tokens] : tokens),
    });
  const twenty = await verify((await answerWrongly(20)).url);
  const lines = twenty.stdout.trimEnd().split("\n");
  expect(lines).toHaveLength(22);
  expect(lines[0]).toMatch(/^(\d+) of (\d+) prompts match$/);
  expect(lines[1]!.split(/ {2,}/)).toEqual(["prompt", "first difference at", "ours", "engine's", "why"]);
  expect(lines[2]!.split(/ {2,}/)).toEqual(["Latin with marks", "0", expect.stringMatching(/^\d+$/), "9999", "-"]);
  wrong = 0;
  const more = await verify((await answerWrongly(21)).url);
  expect(more.stdout).toMatch(/\nand 1 more\n$/);
  expect(more.stdout.match(/ 9999 /g)).toHaveLength(20);
  expect([twenty.exitCode, more.exitCode]).toEqual([1, 1]);
});

test("a model without a chat template: chats are left out, and it is said", async () => {
  const { url, asked } = await startFakeEngine();
  const folder = modelFolder({ eos_token: "<|im_end|>" });
  const { stdout, exitCode } = await runCommand(
    registerVerifyTokenizer,
    ...["verify-tokenizer", "--model", folder, "--engine", url],
  );
  expect(asked.every(({ prompt }) => prompt !== undefined)).toBe(true);
  expect(stdout).toBe(
    `${asked.length} of ${asked.length} prompts match\n` + "no chat template found: chats were not compared\n",
  );
  expect(exitCode).toBeUndefined();
});

test("special tokens of the model's configuration stand in texts; those that are null do not", async () => {
  const { url, asked } = await startFakeEngine();
  const folder = modelFolder({ eos_token: "<|im_end|>", bos_token: null, pad_token: { content: "<|endoftext|>" } });
  await runCommand(registerVerifyTokenizer, ...["verify-tokenizer", "--model", folder, "--engine", url]);
  const prompts = asked.map(({ prompt }) => prompt);
  for (const text of ["<|im_end|>", "a<|im_end|>b", "a <|endoftext|> b"]) expect(prompts).toContain(text);
  expect(prompts).not.toContain("null");
});

test.each([
  { what: "no list of models", models: "{}" },
  { what: "an empty list", models: '{"data":[]}' },
  { what: "an id that is no text", models: '{"data":[{"id":7}]}' },
  { what: "an entry that is null", models: '{"data":[null]}' },
  { what: "a failure", models: '{"data":[{"id":"tiny"}]}', modelsStatus: 503 },
  { what: "null", models: "null" },
  { what: "no JSON", models: "<html>" },
  // The last two used to end as "Cannot read properties of null" and "Unexpected token '<'".
])(
  "an engine that answers the question for its models with $what: it is said how to name one",
  async ({ what: _, ...given }) => {
    const { url, asked } = await startFakeEngine(given);
    const { error, stdout } = await verify(url);
    expect(error).toEqual(new Error(`${url}/v1/models names no model; give --name`));
    expect([asked, stdout]).toEqual([[], ""]);
  },
);

test("an engine that is not there", async () => {
  const { error } = await verify("http://127.0.0.1:1");
  expect(error).toMatchObject({ code: "upstream_connect_failed" });
});

test("a folder without a tokenizer, and an address with a path: refused before anything is asked", async () => {
  const { url, paths } = await startFakeEngine();
  const missing = await runCommand(
    registerVerifyTokenizer,
    ...["verify-tokenizer", "--model", "/nowhere", "--engine", url],
  );
  expect(missing.error).toMatchObject({ code: "config_unreadable" });
  const withPath = await verify(`${url}/v1`);
  expect(withPath.error).toMatchObject({
    name: "UsageError",
    message: expect.stringContaining("--engine must be a URL"),
  });
  expect(paths).toEqual([]);
});

test.each([{ written: [] }, { written: ["--model", "x"] }, { written: ["--engine", "http://a"] }])(
  "$written lacks what is required",
  async ({ written }) => {
    const { error, stderr } = await runCommand(registerVerifyTokenizer, "verify-tokenizer", ...written);
    expect(isUsageRefusal(error)).toBe(true);
    expect(stderr).toMatch(/required option '--(model <folder>|engine <url>)' not specified/);
  },
);
