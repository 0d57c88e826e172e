import type { ServerResponse } from "node:http";
import { EspalierError } from "@espalier/core";
import { waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { httpEngine } from "./engines.ts";
import { createRig, rawClient, type Scripted, send, type Upstream } from "./rig.ts";

interface Later {
  readonly promise: Promise<Upstream | undefined>;
  resolve(upstream: Upstream | undefined): void;
  reject(error: unknown): void;
}

function later(): Later {
  let resolve: Later["resolve"] = () => {};
  let reject: Later["reject"] = () => {};
  const promise = new Promise<Upstream | undefined>((done, failed) => {
    resolve = done;
    reject = failed;
  });
  return { promise, resolve, reject };
}

const upstream = (key: string, url: string, changes: Partial<Upstream> = {}): Upstream => ({
  ...{ key, url, headers: [] },
  ...changes,
});

test("an engine that is chosen later gets the request then, with the body that is meant for it", async () => {
  const engine = await httpEngine(({ body, response }) => response.end(body));
  const choice = later();
  const rig = await createRig({ engines: [], exchange: () => ({ next: () => choice.promise }) });
  const answer = send(rig.port, { body: "of the client" });
  await waitFor(() => rig.responses.length === 1, { what: "a request" });
  expect(rig.events).toEqual([]);
  choice.resolve(upstream("a", engine.url, { body: [Buffer.from("of its "), Buffer.from("own")] }));
  expect((await answer).body.toString()).toBe("of its own");
  expect(await rig.outcome()).toMatchObject({ kind: "completed", status: 200 });
});

test("one body each: the next engine gets the client's again", async () => {
  const seen: string[] = [];
  const engine = await httpEngine(({ body, response }) => {
    seen.push(body.toString());
    response.writeHead(seen.length === 1 ? 503 : 200).end("x");
  });
  const choices = [upstream("a", engine.url, { body: [Buffer.from("other")] }), upstream("b", engine.url)];
  const rig = await createRig({ engines: [], exchange: () => ({ next: () => choices.shift() }) });
  expect((await send(rig.port, { body: "client" })).status).toBe(200);
  expect(seen).toEqual(["other", "client"]);
});

test("a client that goes away while an engine is being chosen: nobody is asked", async () => {
  const engine = await httpEngine(({ response }) => response.end("x"));
  const choice = later();
  const rig = await createRig({ engines: [], exchange: () => ({ next: () => choice.promise }) });
  const client = rawClient(rig.port, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n");
  await waitFor(() => rig.responses.length === 1, { what: "a request" });
  client.socket.destroy();
  expect(await rig.outcome()).toEqual({ kind: "client_closed" });
  choice.resolve(upstream("a", engine.url));
  await choice.promise;
  expect(rig.events).toEqual([]);
});

test.each<readonly [string, (choice: Later, url: string) => void, string]>([
  ["nobody", (choice) => choice.resolve(undefined), "no_engine_available"],
  ["a defect", (choice) => choice.reject(new TypeError("a defect")), "internal_error"],
  ["a refusal", (choice) => choice.reject(new EspalierError("overloaded")), "overloaded"],
])("what is chosen later may be %s", async (_, settle, code) => {
  const choice = later();
  const rig = await createRig({ engines: [], exchange: () => ({ next: () => choice.promise }) });
  const answer = send(rig.port);
  await waitFor(() => rig.responses.length === 1, { what: "a request" });
  settle(choice, "");
  const outcome = await rig.outcome();
  expect(outcome.kind === "failed" && outcome.error.code).toBe(code);
  expect((await answer).status).toBeGreaterThanOrEqual(429);
});

/** An exchange that judges answers by their text. */
const judging = (judge: NonNullable<Scripted["judge"]>) => (): Partial<Scripted> => ({ judge });

test("an answer that is declined costs nothing, and the next engine's is given", async () => {
  const first = await httpEngine(({ response }) => response.writeHead(200, { "x-engine": "first" }).end("no"));
  const second = await httpEngine(({ response }) => response.writeHead(200, { "x-engine": "second" }).end("yes"));
  const rig = await createRig({
    engines: [first.url, second.url],
    options: { retry: { budgetRatio: 0, budgetMinimum: 0 } },
    exchange: judging((_, status, head) => (status === 200 && head.toString() === "no" ? "decline" : "pass")),
  });
  const { headers, body } = await send(rig.port);
  expect([headers["x-engine"], body.toString()]).toEqual(["second", "yes"]);
  expect(rig.events).toEqual(["start a 0", "fail a declined", "start b 1", "answer b 200", "byte b"]);
});

test("what is not decided yet is held back, and nothing of it is lost or doubled", async () => {
  let finish: () => void = () => {};
  const engine = await httpEngine(({ response }) => {
    response.write("one ");
    finish = () => response.write("two ", () => response.end("three"));
  });
  const heads: string[] = [];
  const rig = await createRig({
    engines: [engine.url],
    exchange: judging((_, __, head) => {
      heads.push(head.toString());
      return head.includes("two") ? "pass" : "more";
    }),
  });
  const answer = send(rig.port);
  await waitFor(() => heads.length === 1, { what: "a first look" });
  expect(rig.events).toEqual(["start a 0"]);
  finish();
  expect((await answer).body.toString()).toBe("one two three");
  expect(heads[1]).toMatch(/^one two /);
  expect(heads).toHaveLength(2);
});

test.each([
  ["declined", "decline", 503],
  ["passed", "pass", 200],
  ["left open", "more", 200],
] as const)("at its end an answer can still be %s", async (_, verdict, status) => {
  const engine = await httpEngine(({ response }) => response.end("text"));
  const judge: NonNullable<Scripted["judge"]> = (_, __, ___, ended) => (ended ? verdict : "more");
  const rig = await createRig({ engines: [engine.url], exchange: judging(judge) });
  const answer = await send(rig.port);
  expect(answer.status).toBe(status);
  if (status === 200) expect(answer.body.toString()).toBe("text");
});

test("an answer of more than 64 KiB is not held back any longer", async () => {
  const engine = await httpEngine(({ response }) => response.end(Buffer.alloc(200_000, "x")));
  let most = 0;
  const judge: NonNullable<Scripted["judge"]> = (_, __, head) => {
    most = Math.max(most, head.length);
    return "more";
  };
  const rig = await createRig({ engines: [engine.url], exchange: judging(judge) });
  expect((await send(rig.port)).body.length).toBe(200_000);
  expect(most).toBeLessThanOrEqual(2 * 65_536);
});

test("what was held back of an answer that is then declined is not given with the next one's answer", async () => {
  const first = await httpEngine(({ response }) => {
    response.write("lost");
    setImmediate(() => response.end("declined"));
  });
  const second = await httpEngine(({ response }) => response.end("found"));
  const judge: NonNullable<Scripted["judge"]> = (_, __, head) => {
    if (head.includes("declined")) return "decline";
    return head.includes("found") ? "pass" : "more";
  };
  const rig = await createRig({ engines: [first.url, second.url], exchange: judging(judge) });
  expect((await send(rig.port)).body.toString()).toBe("found");
});

interface Withdrawing {
  readonly withdraw: (() => void)[];
  readonly exchange: (response: ServerResponse) => Partial<Scripted>;
  readonly events: string[];
}

function withdrawing(urls: readonly string[]): Withdrawing {
  const withdraw: (() => void)[] = [];
  const events: string[] = [];
  const left = urls.map((url, at) => upstream(`e${at}`, url));
  return {
    ...{ withdraw, events },
    exchange: () => ({
      next: () => left.shift(),
      observer: {
        attemptStarted: (_, __, give) => void withdraw.push(give),
        attemptFailed: ({ key }, { kind }) => void events.push(`${key} ${kind}`),
      },
    }),
  };
}

test("an attempt that is withdrawn ends at the engine and costs nothing, and the next one gives the answer; twice is once", async () => {
  let closed = false;
  const silent = await httpEngine(({ response }) => {
    response.on("close", () => {
      closed = true;
    });
  });
  const good = await httpEngine(({ response }) => response.end("good"));
  const { withdraw, events, exchange } = withdrawing([silent.url, good.url]);
  const rig = await createRig({ engines: [], exchange, options: { retry: { budgetRatio: 0, budgetMinimum: 0 } } });
  const answer = send(rig.port);
  await waitFor(() => silent.requests.length === 1, { what: "an attempt" });
  withdraw[0]!();
  withdraw[0]!();
  expect((await answer).body.toString()).toBe("good");
  expect(events).toEqual(["e0 withdrawn"]);
  await waitFor(() => closed, { what: "the end at the engine" });
  withdraw[1]!();
  expect(events).toHaveLength(1);
});

test("an answer that has begun cannot be withdrawn", async () => {
  let finish: () => void = () => {};
  const engine = await httpEngine(({ response }) => {
    response.write("half ");
    finish = () => response.end("whole");
  });
  const { withdraw, exchange } = withdrawing([engine.url]);
  const rig = await createRig({ engines: [], exchange });
  const answer = send(rig.port);
  await waitFor(() => rig.responses[0]?.headersSent, { what: "a beginning" });
  withdraw[0]!();
  finish();
  expect((await answer).body.toString()).toBe("half whole");
});
