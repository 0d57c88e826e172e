import { connect } from "node:net";
import { waitFor } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { at, openRequest, parseEvents, type SimState, startSim, type TestSim } from "./sim-client.ts";

const chat = "/v1/chat/completions";
const body = { messages: [{ role: "user", content: "hello" }], max_tokens: 20 };
const streamed = { ...body, stream: true };

const ask = (sim: TestSim) => sim.post(chat, body);

async function addFault(sim: TestSim, fault: Record<string, unknown>): Promise<void> {
  const answer = await sim.post("/sim/faults", fault);
  expect(answer.status).toBe(200);
}

async function outcomes(sim: TestSim): Promise<(readonly [unknown, unknown])[]> {
  return (await sim.state()).requests.map(({ outcome, fault }) => [outcome, fault] as const);
}

/** Waits until the log has so many requests. */
const logged = (sim: TestSim, count: number): Promise<SimState> =>
  waitFor(
    async () => {
      const state = await sim.state();
      return state.requests.length === count && state;
    },
    { what: `${count} logged requests` },
  );

test.each([
  ["garbage-body", 500, "application/json", 2 ** 20],
  ["huge-body", 200, "text/event-stream", 2 ** 25],
])("%s: a whole answer with the status %d that means nothing", async (kind, status, type, sizeBytes) => {
  const sim = await startSim();
  await addFault(sim, { kind, status: 500 });
  const response = await fetch(sim.url + chat, { method: "POST", body: JSON.stringify(body) });
  const bytes = Buffer.from(await response.arrayBuffer());
  expect([response.status, response.headers.get("content-type"), bytes.length]).toEqual([status, type, sizeBytes]);
  expect(bytes.includes("\n")).toBe(false);
  await logged(sim, 1);
  expect(await outcomes(sim)).toEqual([["faulted", kind]]);
});

describe("before headers", () => {
  test.each([
    ["status", {}, 503, "1"],
    ["status", { status: 500 }, 500, null],
    ["status", { status: 429 }, 429, "1"],
    ["sick", {}, 500, null],
  ])("%s %j answers with an error of the engine", async (kind, more, status, retryAfter) => {
    const sim = await startSim();
    await addFault(sim, { kind, ...more });
    const answer = await ask(sim);
    expect(answer.status).toBe(status);
    expect(answer.headers.get("retry-after")).toBe(retryAfter);
    expect(answer.json.error).toMatchObject({ code: status, message: expect.stringContaining(kind) });
    expect((await sim.get("/health")).status).toBe(200);
    expect((await sim.get("/metrics")).status).toBe(200);
    expect(await outcomes(sim)).toEqual([["faulted", kind]]);
    expect((await sim.state()).stats.promptTokens).toBe(0);
  });

  test.each(["reset-before-headers", "refuse"])("%s resets the connection", async (kind) => {
    const sim = await startSim();
    await addFault(sim, { kind });
    const request = openRequest(sim.url + chat, body);
    const { text, error } = await request.ended;
    expect(error?.code).toBe("ECONNRESET");
    expect(text).toBe("");
    await logged(sim, 1);
    await sim.del("/sim/faults");
    expect((await ask(sim)).status).toBe(200);
  });

  test("refuse hits probes too, but never the admin", async () => {
    const sim = await startSim();
    await addFault(sim, { kind: "refuse" });
    await expect(sim.get("/health")).rejects.toThrow();
    await expect(sim.get("/metrics")).rejects.toThrow();
    expect((await sim.state()).faults).toHaveLength(1);
  });

  test("refuse for a time closes the port and opens the same one again", async () => {
    const sim = await startSim();
    const { port, hostname } = new URL(sim.url);
    const dial = () =>
      new Promise<string>((resolve) => {
        const socket = connect(Number(port), hostname);
        socket.on("connect", () => {
          socket.destroy();
          resolve("open");
        });
        socket.on("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? "error"));
      });
    await addFault(sim, { kind: "refuse", delayMs: 1_000 });
    await waitFor(async () => (await dial()) === "ECONNREFUSED", { what: "a closed port" });
    await waitFor(async () => (await dial()) === "open", { what: "an open port" });
    expect((await ask(sim)).status).toBe(200);
  });

  test("an engine that refuses for a time can be stopped meanwhile", async () => {
    const sim = await startSim();
    await addFault(sim, { kind: "refuse", delayMs: 600_000 });
    await sim.stop();
  });

  test("hang-before-headers says nothing until the client gives up", async () => {
    const sim = await startSim();
    await addFault(sim, { kind: "hang-before-headers" });
    const request = openRequest(sim.url + chat, body);
    await waitFor(async () => (await sim.get("/health")).status === 200, { what: "a healthy engine" });
    expect(request.received()).toBe("");
    expect((await sim.state()).requests).toEqual([]);
    request.destroy();
    await logged(sim, 1);
    expect(await outcomes(sim)).toEqual([["faulted", "hang-before-headers"]]);
  });

  test("garbage is not HTTP", async () => {
    const sim = await startSim();
    await addFault(sim, { kind: "garbage" });
    const { error } = await openRequest(sim.url + chat, body).ended;
    expect(error?.code).toMatch(/^HPE_/);
  });

  test("slow holds the whole answer back", async () => {
    const sim = await startSim();
    await ask(sim);
    await addFault(sim, { kind: "slow", delayMs: 120 });
    const request = openRequest(sim.url + chat, streamed);
    const before = (await sim.state()).engineMs;
    await request.head;
    // The engine's clock runs a thousand times faster than the delay.
    expect((await sim.state()).engineMs - before).toBeGreaterThan(100_000);
    expect(parseEvents((await request.ended).text)).toHaveLength(22);
  });

  test("a client that gives up on a slow answer costs the engine nothing", async () => {
    const sim = await startSim();
    await addFault(sim, { kind: "slow", delayMs: 200, count: 1 });
    const request = openRequest(sim.url + chat, body);
    await waitFor(async () => (await sim.state()).faults.length === 0, { what: "the fault to hit" });
    request.destroy();
    await ask(sim);
    await addFault(sim, { kind: "slow", delayMs: 300, count: 1 });
    await ask(sim);
    // Both later requests were computed; the one given up on never was, though its delay is over.
    expect((await sim.state()).stats.finished).toBe(2);
  });
});

describe("in mid-stream", () => {
  test("cut-mid-stream closes the connection without the end", async () => {
    const sim = await startSim();
    await addFault(sim, { kind: "cut-mid-stream", afterTokens: 3 });
    const { text, error } = await openRequest(sim.url + chat, streamed).ended;
    expect(error?.code).toBe("ECONNRESET");
    expect(error?.message).toBe("aborted");
    // The role and three words, all of them whole.
    expect(parseEvents(text)).toHaveLength(4);
    expect(text).not.toContain("[DONE]");
    await logged(sim, 1);
    expect(await outcomes(sim)).toEqual([["faulted", "cut-mid-stream"]]);
  });

  test("reset-mid-stream resets it", async () => {
    const sim = await startSim();
    await addFault(sim, { kind: "reset-mid-stream", afterTokens: 2 });
    const { text, error } = await openRequest(sim.url + chat, streamed).ended;
    expect(error?.code).toBe("ECONNRESET");
    expect(parseEvents(text)).toHaveLength(3);
    await logged(sim, 1);
  });

  test("hang-mid-stream goes silent on an open connection, and the engine drops it with the client", async () => {
    const sim = await startSim();
    await addFault(sim, { kind: "hang-mid-stream", afterTokens: 2, count: 1 });
    const hung = openRequest(sim.url + chat, streamed);
    await waitFor(() => hung.received().split("\n\n").length === 4, { what: "three events" });
    // Requests beside it go on.
    expect((await ask(sim)).status).toBe(200);
    expect(parseEvents(hung.received())).toHaveLength(3);
    expect((await sim.state()).active).toHaveLength(1);
    hung.destroy();
    await logged(sim, 2);
    expect(await outcomes(sim)).toEqual([
      ["finished", undefined],
      ["faulted", "hang-mid-stream"],
    ]);
    expect((await sim.state()).active).toEqual([]);
  });

  test("a fault after no token at all breaks right after the head", async () => {
    const sim = await startSim();
    await addFault(sim, { kind: "cut-mid-stream", afterTokens: 0 });
    const request = openRequest(sim.url + chat, streamed);
    expect((await request.head).statusCode).toBe(200);
    expect((await request.ended).text).toBe("");
  });

  test("a fault beyond the end does not happen", async () => {
    const sim = await startSim();
    await addFault(sim, { kind: "cut-mid-stream", afterTokens: 21 });
    const events = await sim.events(chat, streamed);
    expect(events.at(-1)?.data).toBe("[DONE]");
  });

  test.each(["cut-mid-stream", "reset-mid-stream"])("%s halves an answer that is not streamed", async (kind) => {
    const sim = await startSim();
    const whole = (await ask(sim)).text;
    await addFault(sim, { kind });
    const { text, error } = await openRequest(sim.url + chat, body).ended;
    expect(error?.code).toBe("ECONNRESET");
    expect(text.length).toBe(Math.floor(whole.length / 2));
    expect(text.startsWith('{"id":"chatcmpl-')).toBe(true);
  });

  test("slow with afterTokens sends one event at a time from there on", async () => {
    const sim = await startSim();
    await addFault(sim, { kind: "slow", delayMs: 20, afterTokens: 15 });
    const before = (await sim.state()).engineMs;
    const request = openRequest(sim.url + chat, streamed);
    const { text } = await request.ended;
    expect(parseEvents(text)).toHaveLength(22);
    expect(text.endsWith("data: [DONE]\n\n")).toBe(true);
    // Five words were held back, 20 real milliseconds each.
    expect((await sim.state()).engineMs - before).toBeGreaterThan(95_000);
    expect(request.pieces().length).toBeGreaterThanOrEqual(6);
    expect((await sim.state()).totals).toMatchObject({ finished: 1 });
  });
});

describe("probes", () => {
  test("unhealthy fails the probes while requests work", async () => {
    const sim = await startSim();
    await addFault(sim, { kind: "unhealthy" });
    expect((await sim.get("/health")).status).toBe(503);
    expect((await sim.get("/ping")).status).toBe(503);
    expect((await ask(sim)).status).toBe(200);
    await sim.del("/sim/faults");
    expect((await sim.get("/health")).status).toBe(200);
  });

  test("metrics-lie hides the load, not the counters", async () => {
    const sim = await startSim({ speed: 1, parameters: { maxRunning: 1 } });
    const open = [1, 2, 3].map(() => openRequest(sim.url + chat, { ...streamed, max_tokens: 500 }));
    await Promise.all(open.map(({ head }) => head));
    await sim.state();
    const gauges = async () =>
      [...(await sim.get("/metrics")).text.matchAll(/^vllm:num_requests_(?:running|waiting)\{.*\} (.*)$/gm)].map(
        ([, value]) => Number(value),
      );
    expect(await gauges()).toEqual([1, 2]);
    await addFault(sim, { kind: "metrics-lie", count: 1 });
    expect(await gauges()).toEqual([0, 0]);
    expect(await gauges()).toEqual([1, 2]);
    for (const { destroy } of open) destroy();
  });
});

describe("which requests are hit", () => {
  test("count counts down and ends", async () => {
    const sim = await startSim();
    await addFault(sim, { kind: "status", count: 2 });
    const statuses = [];
    for (let round = 0; round < 4; round++) statuses.push((await ask(sim)).status);
    expect(statuses).toEqual([503, 503, 200, 200]);
    expect((await sim.state()).faults).toEqual([]);
  });

  test("probability hits its share, the same ones for the same seed", async () => {
    const hits = async (seed: number) => {
      const sim = await startSim({ seed });
      await addFault(sim, { kind: "status", probability: 0.3 });
      const statuses = [];
      for (let round = 0; round < 60; round++) statuses.push((await ask(sim)).status);
      return statuses;
    };
    const one = await hits(5);
    expect(await hits(5)).toEqual(one);
    expect(await hits(6)).not.toEqual(one);
    const share = one.filter((status) => status === 503).length / 60;
    expect(share).toBeGreaterThan(0.1);
    expect(share).toBeLessThan(0.5);
  });

  test("path narrows a fault down, or widens it to probes", async () => {
    const sim = await startSim();
    await addFault(sim, { kind: "status", path: "/v1/completions" });
    await addFault(sim, { kind: "status", path: "/health", status: 500 });
    expect((await ask(sim)).status).toBe(200);
    expect((await sim.post("/v1/completions", { prompt: "a", max_tokens: 1 })).status).toBe(503);
    expect((await sim.get("/health")).status).toBe(500);
    expect((await sim.get("/v1/models")).status).toBe(200);
  });

  test("the first of several faults that matches wins", async () => {
    const sim = await startSim();
    await addFault(sim, { kind: "status", status: 500, count: 1 });
    await addFault(sim, { kind: "status", status: 502 });
    expect((await ask(sim)).status).toBe(500);
    expect((await ask(sim)).status).toBe(502);
  });

  test("faults of one engine leave the others alone", async () => {
    const [one, other] = [await startSim(), await startSim()];
    await addFault(one, { kind: "status" });
    expect((await ask(one)).status).toBe(503);
    expect((await ask(other)).status).toBe(200);
  });
});

test("the admin lists what is on, and clears it", async () => {
  const sim = await startSim();
  const added = await sim.post("/sim/faults", { kind: "slow", delayMs: 5, count: 3, path: "/v1" });
  const fault = { kind: "slow", delayMs: 5, count: 3, path: "/v1", probability: 1, status: 503 };
  expect(added.json).toEqual({ faults: [fault] });
  expect((await sim.state()).faults).toEqual([fault]);
  expect((await sim.del("/sim/faults")).json).toEqual({ faults: [] });
  expect((await sim.state()).faults).toEqual([]);
});

test("sixteen faults may be on, a seventeenth is refused", async () => {
  const sim = await startSim();
  for (let round = 0; round < 16; round++) await addFault(sim, { kind: "sick", path: "/none" });
  const answer = await sim.post("/sim/faults", { kind: "sick" });
  expect(answer.status).toBe(400);
  expect((await sim.state()).faults).toHaveLength(16);
});

test.each([
  [{}, "kind"],
  [{ kind: "explode" }, "kind"],
  [{ kind: "slow" }, "delayMs"],
  [{ kind: "slow", delayMs: 600_001 }, "delayMs"],
  [{ kind: "status", status: 200 }, "status"],
  [{ kind: "status", status: 600 }, "status"],
  [{ kind: "status", count: 0 }, "count"],
  [{ kind: "status", count: 1.5 }, "count"],
  [{ kind: "status", probability: 2 }, "probability"],
  [{ kind: "cut-mid-stream", afterTokens: -1 }, "afterTokens"],
  [{ kind: "cut-mid-stream", withinTokens: 1_000_001 }, "withinTokens"],
  [{ kind: "status", path: 7 }, "path"],
])("the admin refuses %j", async (fault, param) => {
  const sim = await startSim();
  const answer = await sim.post("/sim/faults", fault);
  expect(answer.status).toBe(400);
  expect(at(answer.json, "error", "param")).toBe(param);
  expect((await sim.state()).faults).toEqual([]);
});
