import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { chat, type Json, openPost } from "./client.ts";
import { httpEngine } from "./engines.ts";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const program = fileURLToPath(new URL("../../examples/batch/run.mjs", import.meta.url));

const answerOf = (content: string) => ({
  choices: [{ index: 0, message: { role: "assistant", content }, finish_reason: "stop" }],
});

test("a batch file runs in the lowest class: a chat passes its queued requests, and a second run sends nothing", async () => {
  const engine = await httpEngine(rig, () => {});
  const classes = [{ name: "default" }, { name: "background", "max-pending-tokens": 1 }];
  const router = await rig.router({ engines: [engine.url], config: { admission: { classes } } });
  const folder = await mkdtemp(join(tmpdir(), "batch-"));
  rig.own(() => rm(folder, { recursive: true }));
  const [input, output] = [join(folder, "in.jsonl"), join(folder, "out.jsonl")];
  const ids = Array.from({ length: 6 }, (_, at) => `line-${at}`);
  const lines = ids.map((custom_id) =>
    JSON.stringify({ custom_id, method: "POST", url: "/v1/chat/completions", body: chat({ user: custom_id }) }),
  );
  await writeFile(input, `${lines.join("\n")}\n`);
  const run = () =>
    promisify(execFile)(process.execPath, [program, input, output], {
      env: { ...process.env, ROUTER: router.url, CONCURRENCY: "4" },
    });

  const running = run();
  const queued = async () =>
    (await router.metrics()).sum("espalier_admission_queued_requests", { class: "background" });
  await waitFor(async () => engine.requests.length === 1 && (await queued()) === 3, { what: "a queue" });
  const asked = openPost(`${router.url}/v1/chat/completions`, chat({ user: "person" }));
  await waitFor(() => engine.requests.length === 2, { what: "the chat" });
  const userOf = (at: number) => (JSON.parse(String(engine.requests[at]?.body)) as Json).user;
  expect([userOf(0), userOf(1)]).toEqual(["line-0", "person"]);
  for (let at = 0; at < ids.length + 1; at++) {
    await waitFor(() => engine.requests.length > at, { what: "the next request" });
    engine.requests[at]?.response.writeHead(200, { "content-type": "application/json" });
    engine.requests[at]?.response.end(JSON.stringify(answerOf(String(userOf(at)))));
  }
  expect((await asked.head).statusCode).toBe(200);
  await running;
  const results = async () =>
    (await readFile(output, "utf8"))
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as Json);
  const expected = ids.map((custom_id) => ({
    custom_id,
    response: { status_code: 200, request_id: expect.any(String), body: answerOf(custom_id) },
    error: null,
  }));
  const byId = (one: Json, other: Json) => String(one.custom_id).localeCompare(String(other.custom_id));
  expect((await results()).sort(byId)).toEqual(expected);
  await run();
  expect([engine.requests.length, (await results()).length]).toEqual([7, 6]);
});

test("a busy router is asked again; other errors are results", async () => {
  let count = 0;
  const engine = await httpEngine(rig, ({ response }) => {
    const isBusy = count++ === 0;
    response.writeHead(isBusy ? 429 : 422, { "content-type": "application/json", "retry-after": "0" });
    response.end('{"error":{"message":"no"}}');
  });
  const router = await rig.router({ engines: [engine.url] });
  const folder = await mkdtemp(join(tmpdir(), "batch-"));
  rig.own(() => rm(folder, { recursive: true }));
  const [input, output] = [join(folder, "in.jsonl"), join(folder, "out.jsonl")];
  const line = { custom_id: "a", method: "POST", url: "/v1/chat/completions", body: chat() };
  await writeFile(input, JSON.stringify(line));
  await promisify(execFile)(process.execPath, [program, input, output], {
    env: { ...process.env, ROUTER: router.url },
  });
  expect(JSON.parse(await readFile(output, "utf8"))).toMatchObject({ custom_id: "a", response: { status_code: 422 } });
  expect(engine.requests).toHaveLength(2);
});
