import { existsSync, readFileSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { dirname, join } from "node:path";
import { gunzipSync } from "node:zlib";
import { readTrace, traceSessions } from "@espalier/simulator";
import { waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import {
  freeTraceName,
  type Recording,
  type RecordTraceOptions,
  recordTrace,
  registerRecord,
} from "../src/commands/record.ts";
import { runCommand } from "./run-command.ts";
import { type SeenRequest, temporaryFile, temporaryServer } from "./temporary.ts";

const requestAt = (at: number, changes: object = {}) => ({
  ...{
    atMs: 5_000 + at,
    model: "m",
    inputTokens: 33,
    outputTokens: 2,
    blocks: [at, at + 1],
    session: null,
    tenant: null,
  },
  ...{ durationMs: 1, agent: null, parentAgent: null, adapter: null },
  ...changes,
});

/** A router that tells these lines, and then stays or goes. */
async function routerThat(tell: (response: ServerResponse) => void) {
  const seen: SeenRequest[] = [];
  const url = await temporaryServer((request) => {
    seen.push(request);
    request.response.writeHead(200, { "content-type": "application/x-ndjson" });
    tell(request.response);
  });
  return { url, seen };
}

const lines = (...objects: readonly object[]) => objects.map((each) => `${JSON.stringify(each)}\n`).join("");

interface Made {
  readonly recording: Recording;
  readonly file: string;
}

async function recordOf(
  admins: readonly string[],
  { name = "trace.jsonl.gz", ...changes }: Partial<RecordTraceOptions> & { readonly name?: string } = {},
): Promise<Made> {
  const file = join(dirname(temporaryFile("none", "")), name);
  const signal = new AbortController().signal;
  return { file, recording: await recordTrace({ admins, durationMs: 60_000, file, signal, ...changes }) };
}

test("a router's requests become a gzipped trace with sessions, tenants and adapters as numbers and names", async () => {
  const router = await routerThat((response) => {
    const text = lines(
      { skipped: 0 },
      requestAt(1, { session: 77, tenant: 9, adapter: "legal" }),
      requestAt(2, { session: 77 }),
    );
    // A line may come in pieces.
    response.write(text.slice(0, 60));
    response.write(text.slice(60));
    response.end(lines(requestAt(0), { skipped: 3 }));
  });
  const { recording, file } = await recordOf([router.url], { key: "secret" });
  expect(recording).toMatchObject({ requests: 3, models: ["m"], skipped: 3, isFull: false });
  expect(recording.lost).toEqual([`the router at ${router.url} was lost: It stopped.`]);
  expect(router.seen).toMatchObject([
    {
      path: "/admin/recording",
      headers: { authorization: "Bearer secret", "x-espalier-salt": expect.stringMatching(/^[0-9a-f]{32}$/) },
    },
  ]);
  const [first] = gunzipSync(readFileSync(file)).toString("utf8").split("\n");
  expect(JSON.parse(first!)).toEqual({
    ...{ chat_id: 1, parent_chat_id: 77, timestamp: 5.001, input_length: 33, output_length: 2, hash_ids: [1, 2] },
    ...{ model: "m", tenant: 9, adapter: "legal", turn: 0, after: [], pause_ms: 0 },
  });
  const requests = await readTrace(file);
  expect(requests.map(({ arrivalMs, session, turn }) => [Math.round(arrivalMs), session, turn])).toEqual([
    [0, "chat-3", 0],
    [1, "chat-77", 0],
    [2, "chat-77", 1],
  ]);
});

test("a recording keeps what each request of a session waited for, for a replay that waits alike", async () => {
  const router = await routerThat((response) => {
    response.end(
      lines(
        requestAt(0, { session: 77, durationMs: 900 }),
        requestAt(1_000, { session: 77, agent: 5, durationMs: 1_000 }),
        requestAt(2_100, { session: 77, agent: 6, parentAgent: 5, durationMs: 400 }),
        requestAt(700, { durationMs: 2_000 }),
        requestAt(3_000, { session: 77, durationMs: 50 }),
      ),
    );
  });
  const { file } = await recordOf([router.url], { name: "trace.jsonl" });
  const written = readFileSync(file, "utf8").trim().split("\n");
  expect(written.map((line) => JSON.parse(line) as object)).toMatchObject([
    { turn: 0, after: [], pause_ms: 0 },
    { agent: 5, turn: 0, after: [1], pause_ms: 100 },
    { agent: 6, parent_agent: 5, turn: 0, after: [2], pause_ms: 100 },
    { parent_chat_id: -1, turn: 0, after: [], pause_ms: 0 },
    { turn: 1, after: [1, 2], pause_ms: 1_000 },
  ]);
  const requests = await readTrace(file);
  expect(traceSessions(requests)?.map((session) => session.map(({ agent, wait }) => [agent?.name, wait]))).toEqual([
    [
      [undefined, { after: [], thinkMs: 0 }],
      ["5", { after: [0], thinkMs: 100 }],
      ["6", { after: [1], thinkMs: 100 }],
      [undefined, { after: [0, 1], thinkMs: 1_000 }],
    ],
    [[undefined, { after: [], thinkMs: 0 }]],
  ]);
});

test("every router of a recording is given the same salt, no other recording has it, and one that is lost is not all", async () => {
  const gone = await routerThat((response) => response.end(lines(requestAt(0))));
  const staying = await routerThat((response) => response.write(lines(requestAt(1), requestAt(2))));
  const admins = [gone.url, staying.url];
  const { recording } = await recordOf(admins, { limits: { requests: 3 } });
  expect(recording).toMatchObject({ requests: 3, isFull: true });
  await recordOf(admins, { limits: { requests: 3 } });
  const salts = [...gone.seen, ...staying.seen].map(({ headers }) => headers["x-espalier-salt"]);
  expect([salts.length, new Set(salts).size, salts[0] === salts[2]]).toEqual([4, 2, true]);
});

test.each<[string, RecordTraceOptions["limits"], number]>([
  ["request", { requests: 5 }, 5],
  ["byte", { bytes: 200 }, 2],
])("at one %s too many the file ends, and is whole", async (_, limits, kept) => {
  const all = Array.from({ length: 50 }, (__, at) => requestAt(at));
  const router = await routerThat((response) => response.write(lines(...all)));
  const { recording, file } = await recordOf([router.url], { limits: limits! });
  expect(recording).toMatchObject({ requests: kept, isFull: true, lost: [] });
  expect(await readTrace(file)).toHaveLength(kept);
});

test("what a slow disk would pile up is left out and counted, and the recording goes on", async () => {
  const router = await routerThat((response) =>
    response.end(lines(...Array.from({ length: 9 }, (_, at) => requestAt(at)))),
  );
  const { recording, file } = await recordOf([router.url], { limits: { waitingBytes: 300 } });
  expect(recording.requests).toBeGreaterThan(1);
  expect([recording.requests + recording.skipped, recording.skipped > 0]).toEqual([9, true]);
  expect(await readTrace(file)).toHaveLength(recording.requests);
});

test("a signal ends it with a whole file, of the named model alone", async () => {
  const ending = new AbortController();
  const router = await routerThat((response) =>
    response.write(lines(requestAt(0), requestAt(1, { model: "other" }), requestAt(2))),
  );
  const file = join(dirname(temporaryFile("none", "")), "trace.jsonl.gz");
  const options = { admins: [router.url], durationMs: 60_000, file, model: "m" };
  const recording = recordTrace({ ...options, signal: ending.signal });
  await waitFor(() => existsSync(file), { what: "a trace" });
  ending.abort();
  expect(await recording).toMatchObject({ requests: 2, models: ["m"], lost: [], isFull: false });
  expect(await readTrace(file)).toHaveLength(2);
});

test("a router that refuses ends it, says why, and leaves no file", async () => {
  const url = await temporaryServer(({ response }) => {
    response
      .writeHead(429)
      .end(JSON.stringify({ error: { code: "overloaded", message: "Too many concurrent recordings." } }));
  });
  const file = join(dirname(temporaryFile("none", "")), "trace.jsonl");
  const recording = recordTrace({ admins: [url], durationMs: 60_000, file, signal: new AbortController().signal });
  await expect(recording).rejects.toMatchObject({ code: "overloaded", message: expect.stringContaining("429") });
  expect(existsSync(file)).toBe(false);
});

test("a file that cannot be written is named", async () => {
  const router = await routerThat((response) => response.write(lines(requestAt(0))));
  const signal = new AbortController().signal;
  const options = { admins: [router.url], durationMs: 60_000, signal };
  for (const file of ["/nowhere/trace.jsonl", "/nowhere/trace.jsonl.gz"]) {
    await expect(recordTrace({ ...options, file })).rejects.toThrow(`--out: ${file} cannot be written`);
  }
});

test("the command says what it has, and how to simulate it", async () => {
  const url = await temporaryServer(({ path, response }) => {
    const members = [{ state: "alive" }, { state: "down" }];
    if (path === "/admin/status") response.end(JSON.stringify({ usableEngines: 4, mesh: { members } }));
    else response.end(lines(requestAt(0), requestAt(1, { model: "n" })));
  });
  const file = join(dirname(temporaryFile("none", "")), "trace.jsonl");
  const { stdout, stderr, exitCode } = await runCommand(registerRecord, "record", "--admin", url, "--out", file);
  expect(stdout).toBe(
    `2 requests in ${file} (0.0 MB)\nespalier simulate --trace ${file} --engines 4 --routers 2 --what-if engines+1\n`,
  );
  expect(stderr).toContain("models m, n: record one of them with --model to simulate its engines\n");
  // The only router is gone before the time is over.
  expect([stderr.includes(`the router at ${url} was lost`), exitCode]).toEqual([true, 1]);
});

test.each(["0", "-1", "1441", "soon"])("--minutes %s is refused", async (minutes) => {
  const { error } = await runCommand(registerRecord, "record", "--minutes", minutes);
  expect(error).toMatchObject({ name: "UsageError", message: expect.stringContaining("--minutes") });
});

// The second recording of a day replaced the first one, which cannot be made again.
test("a trace is never overwritten: a file that exists is an error before anything is asked, or when it appears later", async () => {
  const file = temporaryFile("trace.jsonl", "of yesterday");
  const { error } = await runCommand(registerRecord, "record", "--admin", "http://127.0.0.1:1", "--out", file);
  const message = `--out: ${file} exists already: name another file, or move it away`;
  expect(error).toMatchObject({ name: "UsageError", message });
  const router = await routerThat((response) => response.write(lines(requestAt(0))));
  const signal = new AbortController().signal;
  await expect(recordTrace({ admins: [router.url], durationMs: 60_000, file, signal })).rejects.toThrow(message);
  expect(readFileSync(file, "utf8")).toBe("of yesterday");
});

test("without --out the trace gets the first number that is free", () => {
  const folder = dirname(temporaryFile("trace-2.jsonl.gz", ""));
  expect(freeTraceName(folder)).toBe(join(folder, "trace.jsonl.gz"));
  writeFileSync(join(folder, "trace.jsonl.gz"), "");
  expect(freeTraceName(folder)).toBe(join(folder, "trace-3.jsonl.gz"));
});
