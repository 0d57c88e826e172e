import { execFileSync } from "node:child_process";
import { setMaxListeners } from "node:events";
import type { RequestResult } from "@espalier/simulator";
import { waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { runDemoLoad } from "../src/demo/demo-load.ts";
import { describeDemo } from "../src/demo/describe-demo.ts";
import { streamAnswer, temporaryServer } from "./temporary.ts";

/** Every request under way listens to the signal. */
function createAbort(): AbortController {
  const abort = new AbortController();
  setMaxListeners(0, abort.signal);
  return abort;
}

interface ChatBody {
  readonly model: string;
  readonly stream: boolean;
  readonly max_tokens: number;
  readonly messages: readonly { readonly role: string; readonly content: string }[];
}

test("the load is conversations that go on: each message brings all before it, with the answers", async () => {
  const abort = createAbort();
  const sessions = new Map<string, ChatBody[]>();
  const url = await temporaryServer(({ headers, body, response }) => {
    const session = String(headers["x-session-id"]);
    sessions.set(session, [...(sessions.get(session) ?? []), JSON.parse(body) as ChatBody]);
    streamAnswer(response, ["an answer"], 8);
  });
  const results: RequestResult[] = [];
  await runDemoLoad({
    urls: () => [url],
    model: "tiny",
    requestsPerSecond: 200,
    signal: abort.signal,
    onResult(result) {
      results.push(result);
      if (results.length === 300) abort.abort();
    },
  });
  expect(results.every(({ error, engine }) => error === undefined && engine === "engine-of-the-test")).toBe(true);
  expect(results[0]).toMatchObject({ inputTokens: 100, outputTokens: 1, cachedTokens: 8 });
  const turns = [...sessions.values()];
  expect(turns.some((bodies) => bodies.length === 6)).toBe(true);
  expect(Math.max(...turns.map((bodies) => bodies.length))).toBe(6);
  const systemTexts = new Set<string>();
  for (const bodies of turns) {
    for (const [turn, { model, stream, messages }] of bodies.entries()) {
      expect([model, stream]).toEqual(["tiny", true]);
      const roles = ["system", "user", ...Array(turn).fill(["assistant", "user"]).flat()];
      expect(messages.map(({ role }) => role)).toEqual(roles);
      if (turn > 0) expect(messages.slice(0, -2)).toEqual(bodies[turn - 1]!.messages);
      systemTexts.add(messages[0]!.content);
    }
  }
  expect(systemTexts.size).toBe(3);
});

test("a conversation whose request failed is not continued", async () => {
  const abort = createAbort();
  const url = await temporaryServer(({ response }) => response.writeHead(503).end("full"));
  const results: RequestResult[] = [];
  await runDemoLoad({
    urls: () => [url],
    model: "tiny",
    requestsPerSecond: 2_000,
    signal: abort.signal,
    onResult(result) {
      results.push(result);
      if (results.length === 50) abort.abort();
    },
  });
  expect(results.every(({ error, turn }) => error === "status 503: full" && turn === 0)).toBe(true);
});

test("what failed is said again, and to routers that there are then", async () => {
  const abort = createAbort();
  const broken = await temporaryServer(({ response }) => response.writeHead(503).end("gone"));
  const bodies: ChatBody[] = [];
  const whole = await temporaryServer(({ body, response }) => {
    bodies.push(JSON.parse(body) as ChatBody);
    streamAnswer(response, ["an answer"], 8);
  });
  let urls: readonly string[] = [broken];
  const results: RequestResult[] = [];
  await runDemoLoad({
    urls: () => urls,
    model: "tiny",
    requestsPerSecond: 500,
    signal: abort.signal,
    onResult(result) {
      results.push(result);
      if (results.length === 20) urls = [];
      if (results.length === 20) setImmediate(() => (urls = [whole]));
      if (results.length === 200) abort.abort();
    },
  });
  // In the order in which they were sent: none after the first that went to the new one.
  const indices = (isFailed: boolean) =>
    results.filter(({ error }) => (error !== undefined) === isFailed).map(({ index }) => index);
  expect(Math.max(...indices(true))).toBeLessThan(Math.min(...indices(false)));
  const failed = new Set(results.slice(0, 20).map(({ session }) => session));
  const later = results.slice(20).filter(({ session, error }) => failed.has(session) && error === undefined);
  expect(later.length).toBeGreaterThan(0);
  for (const { messages } of bodies) {
    const roles = messages.map(({ role }) => role).join(" ");
    expect(roles).toMatch(/^system user( assistant user)*$/);
  }
});

// Arrivals that were late followed each other without a turn of the event loop: 10,000 were sent before an answer was read, and
// a machine that was busy for a moment was busy for good.
test("a load that is behind its time reads answers all the same", async () => {
  const abort = createAbort();
  const url = await temporaryServer(({ response }) => streamAnswer(response, ["an answer"], 8));
  let sent = 0;
  let sentAtFirst: number | undefined;
  let mostUnderWay = 0;
  let answered = 0;
  await runDemoLoad({
    urls() {
      sent++;
      mostUnderWay = Math.max(mostUnderWay, sent - answered);
      return [url];
    },
    model: "tiny",
    requestsPerSecond: 1_000_000,
    signal: abort.signal,
    onResult({ error }) {
      expect(error).toBeUndefined();
      answered++;
      sentAtFirst ??= sent;
      if (answered === 300) abort.abort();
    },
  });
  expect(sentAtFirst).toBeLessThan(500);
  expect(mostUnderWay).toBeLessThanOrEqual(1_000);
});

test("an abort ends the load at once, with requests under way and before the next is due", async () => {
  const abort = createAbort();
  let open = 0;
  const url = await temporaryServer(({ response }) => {
    open++;
    response.on("close", () => open--);
  });
  const run = runDemoLoad({
    urls: () => [url],
    model: "tiny",
    requestsPerSecond: 50,
    signal: abort.signal,
    onResult: () => expect.fail("nothing had ended"),
  });
  await waitFor(() => open >= 3, { what: "requests under way" });
  abort.abort();
  await run;
  await waitFor(() => open === 0, { what: "end of the requests" });
});

const router = {
  url: "http://127.0.0.1:8080",
  adminUrl: "http://127.0.0.1:9090",
  meshAddress: "127.0.0.1:7946",
  picker: null,
};
const fleet = { engineUrls: [], engines: "engines", policy: "random", requestsPerSecond: 0 };
const next = { url: "http://127.0.0.1:8081", adminUrl: "http://127.0.0.1:9091", meshAddress: null, picker: null };

test("the greeting names every address", () => {
  const text = describeDemo({
    routers: [router, next],
    engineUrls: ["http://127.0.0.1:9080", "http://127.0.0.1:9081"],
    engines: "2 simulated engines (a10g-7b)",
    policy: "random",
    sharing: "none",
    model: "sim-model",
    requestsPerSecond: 8,
  });
  for (const address of ["8080", "8081", "9090/dashboard/", "9090/metrics", "9091/metrics", "9080", "9081"])
    expect(text).toContain(address);
  expect(text).toContain("npx espalier engines --admin http://127.0.0.1:9090");
  expect(text).toContain("2 simulated engines (a10g-7b), policy random");
  expect(text).toContain("load      8 chat requests per second; --load 0 sends none");
  expect(text).toContain("npx espalier try --admin http://127.0.0.1:9090");
});

test.each(["sim-model", "org/model-7b:q4", `it's "quoted" \\ $HOME`])(
  "the line to paste is one that a shell passes on as JSON, for the model %j",
  (model) => {
    const text = describeDemo({ ...fleet, sharing: "mesh", routers: [router], model });
    const start = text.indexOf("curl");
    const command = text.slice(start, text.indexOf("\n  npx", start));
    const words = execFileSync("sh", ["-c", `curl() { printf '%s\\0' "$@"; }\n${command}`], { encoding: "utf8" });
    const [noBuffer, url, header, value, data, body] = words.split("\0");
    expect([noBuffer, url, header, value, data]).toEqual([
      "-N",
      "http://127.0.0.1:8080/v1/chat/completions",
      "-H",
      "content-type: application/json",
      "-d",
    ]);
    expect(JSON.parse(body!)).toMatchObject({ model, stream: true, messages: [{ role: "user" }] });
  },
);

test.each([
  { sharing: "mesh", says: "routers share cache and load state" },
  { sharing: "none", says: "routers share nothing" },
] as const)("several routers with sharing $sharing: $says", ({ sharing, says }) => {
  const given = { ...fleet, model: "m", sharing } as const;
  expect(describeDemo({ ...given, routers: [router, next] })).toContain(
    `/metrics\n          ${says}\ndashboard ${router.adminUrl}/dashboard/\nengines`,
  );
  expect(describeDemo({ ...given, routers: [router] })).not.toContain("they share");
});

test("the second router is named as one to ask the same", () => {
  const given = { ...fleet, model: "m", sharing: "mesh" } as const;
  expect(describeDemo({ ...given, routers: [router, next] })).toContain(
    "repeat at http://127.0.0.1:8081: every router finds the engine that caches the prompt",
  );
  expect(describeDemo({ ...given, routers: [router] })).not.toContain("repeat at");
});

// Symptom: the demo promised of routers that share nothing that any of them would find the engine that has the prompt.
test("routers that share nothing are not said to find each other's prompts", () => {
  const given = { ...fleet, model: "m", sharing: "none" } as const;
  expect(describeDemo({ ...given, routers: [router, next] })).not.toContain("every router finds");
});
