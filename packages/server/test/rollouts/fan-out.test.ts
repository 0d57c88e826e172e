import { EspalierError, type HttpRequest, silentMeter } from "@espalier/core";
import type { EngineRecord } from "@espalier/engines";
import { createRecordingLogger } from "@espalier/testing";
import fastify from "fastify";
import { expect, test } from "vitest";
import { registerControl } from "../../src/rollouts/fan-out.ts";

const mebibyte = 1024 * 1024;

/** A router with some engines, whose answers a function gives. */
function rig(count: number, answerOf: (engine: number, request: HttpRequest) => { status: number; body: string }) {
  const app = fastify();
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", { parseAs: "buffer" }, (_, body, done) => done(null, body));
  const engines = Array.from({ length: count }, (_, at) => ({ id: `e${at}`, url: `http://e${at}:1`, state: "up" }));
  const events: string[] = [];
  registerControl(app, {
    fleet: { engines: engines as unknown as readonly EngineRecord[] },
    control: {
      begin(id) {
        events.push(`begin ${id}`);
        return () => events.push(`undo ${id}`);
      },
      end: (id, _, isVoid) => void events.push(`end ${id} ${isVoid}`),
      forget() {},
    },
    abort() {},
    async http(request) {
      const at = Number(/e(\d+)/.exec(request.url)?.[1]);
      return { ...answerOf(at, request), headers: {} };
    },
    settings: { timeoutMs: 1_000 },
    logger: createRecordingLogger(),
    meter: silentMeter,
  });
  const post = async (url: string, body = "", headers = {}) => {
    const answer = await app.inject({
      ...{ method: "POST", url, payload: body, headers: { "content-type": "text/plain", ...headers } },
    });
    return { status: answer.statusCode, text: answer.body, json: () => JSON.parse(answer.body) };
  };
  return { post, events };
}

test("body and query reach each engine as they are", async () => {
  const seen: HttpRequest[] = [];
  const { post } = rig(2, (_, request) => {
    seen.push(request);
    return { status: 200, body: "" };
  });
  const body = '{"names" : ["é"],\n "n":1.0}';
  await post("/wake_up?tags=weights&tags=kv_cache", body);
  const sent = { method: "POST", body, timeoutMs: 1_000, maxBytes: mebibyte };
  expect(seen).toMatchObject(
    [0, 1].map((at) => ({ ...sent, url: `http://e${at}:1/wake_up?tags=weights&tags=kv_cache` })),
  );
});

test("what all engines say alike is in the answer, sums where they count, and each one's own answer", async () => {
  const { post } = rig(2, (at) => ({
    status: 200,
    body: JSON.stringify({ world_size: 4, weight_version: "7", rank: at, loads: [{ at }], message: "done" }),
  }));
  expect((await post("/update_weights_from_disk")).json()).toEqual({
    ...{
      status: "ok",
      success: true,
      world_size: 8,
      weight_version: "7",
      message: "done",
      loads: [{ at: 0 }, { at: 1 }],
    },
    workers: [0, 1].map((at) => ({
      ...{ engine: `e${at}`, url: `http://e${at}:1`, status: 200, error: null },
      body: { world_size: 4, weight_version: "7", rank: at, loads: [{ at }], message: "done" },
    })),
  });
});

test.each([
  ["an empty answer", ""],
  ["null", "null"],
  ["text", "Cache flushed."],
])("%s of the engines makes an object, as clients parse it", async (_, body) => {
  const { post } = rig(1, () => ({ status: 200, body }));
  const answer = await post("/release_memory_occupation", "{}");
  expect([answer.status, answer.json()]).toMatchObject([200, { success: true, status: "ok" }]);
});

test("a named engine's answer comes as it is", async () => {
  for (const [body, text] of [
    ["null", "null"],
    ['{"success":true}', '{"success":true}'],
    ["plain", "plain"],
  ] as const) {
    const { post } = rig(2, () => ({ status: 202, body }));
    const answer = await post("/update_weights_from_tensor", "{}", { "x-espalier-engine": "http://e1:1" });
    expect([answer.status, answer.text]).toEqual([202, text]);
  }
});

test("failures are undone one by one, and success: false is one of them", async () => {
  const { post, events } = rig(3, (at) => {
    if (at === 0) throw new EspalierError("upstream_connect_failed");
    return { status: 200, body: JSON.stringify({ success: at === 2 }) };
  });
  const answer = await post("/reset_prefix_cache");
  expect(answer.status).toBe(502);
  expect(answer.json()).toMatchObject({
    ...{ success: false, error: { message: "Failed at e0, e1." } },
    workers: [
      { status: null, error: expect.stringContaining("upstream_connect_failed") },
      { status: 200 },
      { error: null },
    ],
  });
  expect(events.toSorted()).toEqual(["begin e0", "begin e1", "begin e2", "end e2 true", "undo e0", "undo e1"]);
});

test("a pause voids caches unless the query keeps them", async () => {
  const { post, events } = rig(1, () => ({ status: 200, body: "" }));
  await post("/pause?mode=keep&clear_cache=false");
  await post("/pause?mode=abort");
  await post("/pause_generation", "{}");
  expect(events.filter((event) => event.startsWith("end"))).toEqual(["end e0 false", "end e0 true", "end e0 false"]);
});

test("a collective call voids caches if it is about weights", async () => {
  const { post, events } = rig(1, () => ({ status: 200, body: '{"results":[null]}' }));
  for (const method of ["update_weights_nccl", "skyrl_finish_weight_update", "reset_statistics", undefined]) {
    await post("/collective_rpc", JSON.stringify({ method }));
  }
  const ends = events.filter((event) => event.startsWith("end"));
  expect(ends).toEqual(["end e0 true", "end e0 true", "end e0 false", "end e0 false"]);
});

test("answers past 16 MiB in all keep only their status, and the next call has its own", async () => {
  const { post } = rig(17, () => ({ status: 200, body: JSON.stringify("x".repeat(mebibyte - 2)) }));
  for (let call = 0; call < 2; call++) {
    const { workers } = (await post("/collective_rpc", "{}")).json();
    expect(workers.map(({ body }: { body: unknown }) => body === null)).toEqual([...Array(16).fill(false), true]);
    expect(workers[16]).toMatchObject({ engine: "e16", status: 200, error: null });
  }
});
