import { classSpanMs, defaultAdmissionSettings } from "@espalier/routing";
import { loadConfig } from "@espalier/server";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { chat, errorOf, type Json, type OpenRequest, openPost, post } from "./client.ts";
import { type HttpEngine, httpEngine, type SeenRequest } from "./engines.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/** One prompt at a time at an engine, so that the second one waits. */
const oneAtATime = ["interactive", "default", "batch"].map((name) => ({ name, "max-pending-tokens": 1 }));

interface Line {
  readonly engine: HttpEngine;
  readonly router: RunningRouter;
  /** Prompts in the order in which the engine got them. */
  prompts(): readonly string[];
  /** Posts a prompt and waits until it is where it should be. */
  send(prompt: string, headers?: Readonly<Record<string, string>>): Promise<OpenRequest>;
  /** Answers what the engine has got and not answered. */
  answer(): void;
  queued(): Promise<number>;
}

async function line(config: Json = {}, admission: Json = {}): Promise<Line> {
  const open: SeenRequest[] = [];
  const engine = await httpEngine(rig, (request) => open.push(request));
  const router = await rig.router({
    engines: [engine.url],
    config: { admission: { classes: oneAtATime, ...admission }, ...config },
  });
  const queued = async () => (await router.metrics()).sum("espalier_admission_queued_requests");
  return {
    engine,
    router,
    queued,
    prompts: () => engine.requests.map(({ body }) => promptOf(body)),
    async send(prompt, headers = {}) {
      const before = engine.requests.length + (await queued());
      const request = openPost(
        `${router.url}/v1/chat/completions`,
        chat({ messages: [{ role: "user", content: `${prompt} ${padding}` }] }),
        headers,
      );
      await waitFor(async () => engine.requests.length + (await queued()) > before, { what: `${prompt} in its place` });
      return request;
    },
    answer() {
      for (const { response } of open.splice(0)) {
        response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ usage }));
      }
    },
  };
}

/** Makes a prompt cost more than its answer, which is charged later than the next request goes. */
const padding = "x".repeat(2_000);

const usage = { prompt_tokens: 8, completion_tokens: 2, total_tokens: 10 };

function promptOf(body: Buffer): string {
  const { messages } = JSON.parse(body.toString("utf8")) as { messages: readonly { content: string }[] };
  return messages[0]!.content.split(" ")[0]!;
}

/** Lets one request after the other through, until the engine has had so many. */
async function drain({ engine, answer }: Line, requests: number): Promise<void> {
  await waitFor(
    () => {
      answer();
      return engine.requests.length === requests;
    },
    { what: `${requests} requests at the engine` },
  );
  answer();
}

test("requests wait while the engine is busy, and go by class: by header, by alias, in order of arrival", async () => {
  const one = await line();
  const requests = [
    await one.send("running"),
    await one.send("job", { "x-espalier-priority": "batch" }),
    await one.send("first"),
    await one.send("bulk", { "x-smg-priority": "Bulk" }),
    await one.send("person", { "x-espalier-priority": "Interactive" }),
    await one.send("second", { "x-smg-priority": "no-such-class" }),
  ];
  expect(one.prompts()).toEqual(["running"]);
  await drain(one, 6);
  expect(one.prompts()).toEqual(["running", "person", "first", "second", "job", "bulk"]);
  const heads = await Promise.all(requests.map(({ head }) => head));
  expect(heads.map(({ statusCode }) => statusCode)).toEqual(Array(6).fill(200));
  expect(heads[0]!.headers["x-espalier-queued-ms"]).toBeUndefined();
  expect(Number(heads[1]!.headers["x-espalier-queued-ms"])).toBeGreaterThan(0);
  // Waiting for an engine is no overhead of the router.
  expect(Number(heads[1]!.headers["x-espalier-overhead-ms"])).toBeLessThan(
    Number(heads[1]!.headers["x-espalier-queued-ms"]) + 1_000,
  );
  await one.router.untilIdle();
  const metrics = await one.router.metrics();
  expect(metrics.sum("espalier_admission_wait_seconds_count", { class: "batch" })).toBe(2);
  expect(metrics.sum("espalier_admission_wait_seconds_count", { class: "interactive" })).toBe(1);
  expect(metrics.sum("espalier_admission_tokens_total", { class: "default", kind: "output" })).toBe(6);
  expect(metrics.sum("espalier_admission_queued_requests")).toBe(0);
});

test("a full queue is 429 with Retry-After, and a higher class takes the place of a lower one", async () => {
  const one = await line({}, { "max-queued": 1 });
  await one.send("running");
  const job = await one.send("job", { "x-espalier-priority": "batch" });
  const other = await post(`${one.router.url}/v1/chat/completions`, chat(), { "x-espalier-priority": "batch" });
  expect([other.status, errorOf(other).code, other.headers["retry-after"]]).toEqual([429, "queue_full", "1"]);
  const anthropic = await post(`${one.router.url}/v1/messages`, chat(), { "x-espalier-priority": "batch" });
  expect([anthropic.status, anthropic.json.error]).toMatchObject([429, { type: "rate_limit_error" }]);
  const person = openPost(`${one.router.url}/v1/chat/completions`, chat(), { "x-espalier-priority": "interactive" });
  expect((await job.head).statusCode).toBe(429);
  await drain(one, 2);
  expect((await person.head).statusCode).toBe(200);
  await one.router.untilIdle();
  const metrics = await one.router.metrics();
  expect(metrics.sum("espalier_admission_shed_total", { class: "batch", reason: "queue_full" })).toBe(2);
  expect(metrics.sum("espalier_admission_shed_total", { class: "batch", reason: "preempted" })).toBe(1);
  expect(metrics.sum("espalier_requests_total", { status: "429" })).toBe(3);
});

test("a deadline that passes in the queue is 429; the alias of llm-d counts too", async () => {
  const one = await line();
  await one.send("running");
  for (const name of ["x-espalier-deadline-ms", "x-llm-d-slo-ttft-ms"]) {
    const late = await post(`${one.router.url}/v1/chat/completions`, chat(), { [name]: "50" });
    expect([late.status, errorOf(late).code, late.headers["retry-after"]]).toEqual([429, "deadline_missed", "1"]);
  }
  expect(one.prompts()).toEqual(["running"]);
  await drain(one, 1);
});

test("a client that leaves while it waits leaves the queue, and no engine hears of it", async () => {
  const one = await line();
  await one.send("running");
  const gone = await one.send("gone");
  await one.send("stays");
  gone.destroy();
  await waitFor(async () => (await one.queued()) === 1, { what: "the client gone from the queue" });
  await drain(one, 2);
  expect(one.prompts()).toEqual(["running", "stays"]);
  await one.router.untilIdle();
  expect((await one.router.metrics()).sum("espalier_admission_shed_total", { reason: "client_gone" })).toBe(1);
});

test.each([
  ["x-espalier-priority", "urgent"],
  ["x-espalier-deadline-ms", "soon"],
  ["x-espalier-deadline-ms", "0"],
  ["x-espalier-tenant", "t".repeat(129)],
])("a header that says nothing known is refused: %s: %.10s", async (name, value) => {
  const one = await line();
  const answer = await post(`${one.router.url}/v1/chat/completions`, chat(), { [name]: value });
  expect([answer.status, errorOf(answer)]).toMatchObject([400, { code: "invalid_header", param: name }]);
});

test("tenants take turns: by API key, by header, by the header of llm-d", async () => {
  const keys = ["a", "b"].map((name) => ({ name, key: `key-of-${name}` }));
  const one = await line({ "api-keys": keys }, { "trust-tenant-header": true });
  const by = (name: string, more = {}) => ({ authorization: `Bearer key-of-${name}`, ...more });
  await one.send("running", by("a"));
  for (const prompt of ["a1", "a2", "a3"]) await one.send(prompt, by("a"));
  for (const prompt of ["b1", "b2"]) await one.send(prompt, by("b"));
  await one.send("c1", by("a", { "x-espalier-tenant": "c" }));
  await one.send("d1", by("a", { "x-llm-d-inference-fairness-id": "d" }));
  await drain(one, 8);
  expect(one.prompts().slice(1, 5).sort()).toEqual(["a1", "b1", "c1", "d1"]);
  expect(one.prompts().slice(-1)).toEqual(["a3"]);
});

test("the priority of a body names a class where the configuration says how, and engines are told theirs", async () => {
  const one = await line({}, { "body-priority": "lower-first", "engine-priority": "higher-first" });
  const url = `${one.router.url}/v1/chat/completions`;
  for (const fields of [{ priority: -5 }, { priority: 7 }, {}, { priority: 0 }]) {
    const answer = post(url, chat(fields));
    await drain(one, one.engine.requests.length + 1);
    expect((await answer).status).toBe(200);
  }
  const named = post(url, chat(), { "x-espalier-priority": "batch" });
  await drain(one, 5);
  expect((await named).status).toBe(200);
  const reported = one.engine.requests.map(({ body }) => (JSON.parse(body.toString("utf8")) as Json).priority);
  expect(reported).toEqual([1, -1, undefined, 0, -1]);
});

test("engines that order by it are told where a prompt stands: by what is to be computed, and by its age", async () => {
  const one = await line({}, { "engine-priority": "lower-first", "engine-order": "shortest" });
  const fromMs = Date.now();
  for (const prompt of ["first", `long ${"y".repeat(40_000)}`, "second"]) {
    await one.send(prompt);
    await drain(one, one.engine.requests.length);
  }
  await one.send("job", { "x-espalier-priority": "batch" });
  await drain(one, 4);
  const [first, long, second, job] = one.engine.requests.map(({ body }) => {
    return (JSON.parse(body.toString("utf8")) as { priority: number }).priority;
  });
  expect(first).toBeGreaterThanOrEqual(fromMs);
  expect(second).toBeGreaterThan(first!);
  // 10,000 tokens take more than a second, by what is believed of engines that have not answered: 20 s of age.
  expect(long).toBeGreaterThan(first! + 20_000);
  expect(long).toBeGreaterThan(second!);
  expect(job).toBeGreaterThan(fromMs + classSpanMs);
});

test("a body's priority goes to the engine as it came where nothing is configured", async () => {
  const one = await line();
  const answer = post(`${one.router.url}/v1/chat/completions`, chat({ priority: 3 }));
  await drain(one, 1);
  expect((await answer).status).toBe(200);
  expect((JSON.parse(one.engine.requests[0]!.body.toString("utf8")) as Json).priority).toBe(3);
});

test("with admission off nothing waits, and its headers mean nothing", async () => {
  const one = await line({}, { mode: "off" });
  await one.send("running");
  await one.send("second", { "x-espalier-priority": "urgent" });
  expect(one.prompts()).toEqual(["running", "second"]);
  await drain(one, 2);
});

test("those that wait get through a drain", async () => {
  const one = await line();
  const running = await one.send("running");
  const waiting = await one.send("waiting");
  const cut = one.router.router.drain.run({ delayMs: 0, graceMs: 20_000 });
  await drain(one, 2);
  expect([(await running.head).statusCode, (await waiting.head).statusCode]).toEqual([200, 200]);
  expect(await cut).toBe(0);
});

test("the configuration has by default what the simulator runs with", () => {
  expect(loadConfig({}).admission).toMatchObject(defaultAdmissionSettings);
});
