import { expect, test } from "vitest";
import { createServiceSource } from "../../../src/discovery/index.ts";
import { plainTraits } from "../helpers.ts";
import { createKubernetesRig, slice, sliceCollection } from "./rig.ts";

/** A service with one slice and engine, followed. `put` gives the slice other addresses. */
async function createRig({ starts = true } = {}) {
  const rig = createKubernetesRig((ports) =>
    createServiceSource(ports, {
      ...{ namespace: "ai", service: "vllm", port: undefined, family: "auto", traits: plainTraits },
    }),
  );
  const put = (...hosts: readonly number[]) =>
    rig.api.put(
      sliceCollection,
      slice(
        "a",
        hosts.map((host) => `10.0.0.${host}`),
      ),
    );
  put(1);
  if (starts) await rig.start();
  return {
    ...rig,
    put,
    latest: () => rig.recorder.lists.at(-1),
    current: () => rig.watch(sliceCollection),
    lists: () => rig.count("list", sliceCollection),
    watches: () => rig.count("watch", sliceCollection),
  };
}

const ids = (...hosts: readonly number[]): string => hosts.map((host) => `10.0.0.${host}:8000`).join(" ");
const minute = 60_000;

test("a watch that the server ends in order goes on where it was, with nothing lost and no list", async () => {
  const { current, put, settle, latest, lists, watches, messages } = await createRig();
  await settle(minute);
  current().end();
  put(1, 2);
  await settle();
  expect(latest()).toBe(ids(1, 2));
  expect([lists(), watches(), messages()]).toEqual([1, 2, []]);
});

test("a watch that breaks goes on where it was, and that is not worth a word", async () => {
  const { current, put, settle, latest, lists, messages } = await createRig();
  current().drop();
  put(1, 2);
  await settle(1_000);
  expect(latest()).toBe(ids(1, 2));
  expect([lists(), messages()]).toEqual([1, []]);
});

test("bookmarks move the place at which a watch goes on", async () => {
  const { api, current, settle, put, latest, lists } = await createRig();
  // Nothing of the service changes, but much else does.
  for (let at = 0; at < 10; at++) api.put("/api/v1/namespaces/ai/pods", { metadata: { name: `p${at}` } });
  api.bookmark();
  await settle(minute);
  api.compact();
  api.bookmark();
  await settle();
  current().end();
  await settle();
  put(2);
  await settle();
  expect(latest()).toBe(ids(2));
  expect(lists()).toBe(1);
});

test.each(["as a status", "as an event"])("a version that has expired, %s, leads to a new list soon", async (how) => {
  const { api, current, put, settle, latest, lists, messages } = await createRig();
  await settle(minute);
  const watch = current();
  watch.isSilent = true;
  put(2);
  if (how === "as an event") {
    const object = { kind: "Status", code: 410, message: "too old resource version" };
    watch.data(`${JSON.stringify({ type: "ERROR", object })}\n`);
  } else {
    api.compact();
    watch.end();
  }
  await settle(300);
  expect(latest()).toBe(ids(2));
  expect([lists(), messages()]).toEqual([2, []]);
});

test("a server for which every version has expired is asked ever more rarely", async () => {
  const { api, current, settle, lists } = await createRig();
  for (let at = 0; at < 200; at++) api.faults.watch.push({ status: 410 });
  current().drop();
  await settle(10 * minute);
  expect(lists()).toBeGreaterThan(10);
  expect(lists()).toBeLessThan(60);
});

test("a watch that says nothing for 70 seconds, not even its end, is dead: a list tells what it did not", async () => {
  const { current, put, settle, latest, lists, watches } = await createRig();
  const watch = current();
  watch.isSilent = true;
  put(2);
  await settle(69_000);
  expect(latest()).toBe(ids(1));
  expect(watches()).toBe(1);
  await settle(2_000);
  expect(latest()).toBe(ids(2));
  expect([lists(), watches()]).toEqual([2, 2]);
});

test("a quiet watch that is told where it is, or anything else, is not dead", async () => {
  const { api, current, settle, lists, watches } = await createRig();
  for (let at = 0; at < 10; at++) {
    await settle(minute);
    if (at % 2 === 0) api.bookmark();
    else current().data("\n");
  }
  expect([lists(), watches()]).toEqual([1, 1]);
});

test("a server that takes a watch and answers nothing is given up after 15 seconds", async () => {
  const { api, current, put, settle, latest } = await createRig();
  api.faults.watch.push("hang");
  current().drop();
  put(2);
  await settle(15_000);
  expect(latest()).toBe(ids(1));
  await settle(2_000);
  expect(latest()).toBe(ids(2));
});

test.each([
  ["no JSON", "{nonsense\n"],
  ["no event", '{"type":"ADDED"}\n'],
  ["an object without a name", '{"type":"ADDED","object":{"metadata":{"resourceVersion":"1"}}}\n'],
  ["an unknown type", '{"type":"RENAMED","object":{"metadata":{"name":"a","resourceVersion":"1"}}}\n'],
  ["an error without a code", '{"type":"ERROR","object":{}}\n'],
  ["a list", "[]\n"],
  ["half a line and then the end", '{"type":"DELETED","object":{"metadata":{"name":"a"'],
])("a line that is %s ends the watch, which goes on where it was", async (_, text) => {
  const { current, put, settle, latest, lists, messages } = await createRig();
  current().data(text);
  if (!text.endsWith("\n")) current().drop();
  put(1, 2);
  await settle(1_000);
  expect(latest()).toBe(ids(1, 2));
  expect([lists(), messages()]).toEqual([1, []]);
});

test("what is told again changes nothing", async () => {
  const { current, settle, recorder } = await createRig();
  const metadata = { name: "a", resourceVersion: "1001" };
  const event = `${JSON.stringify({ type: "MODIFIED", object: { ...slice("a", ["10.0.0.1"]), metadata } })}\n`;
  current().data(event.repeat(5));
  await settle();
  expect(recorder.lists).toEqual(["", ids(1)]);
});

test("watches that fail three times in a row are reported and lead to a list, again and again, until one works", async () => {
  const { api, current, put, settle, latest, lists, messages, recorder } = await createRig();
  for (let at = 0; at < 30; at++) api.faults.watch.push({ status: 403 });
  current().drop();
  put(2);
  await settle(5 * minute);
  // Without watches it is the lists that tell of changes.
  expect(latest()).toBe(ids(2));
  expect(lists()).toBeGreaterThan(3);
  const failure = "status 403, the service account lacks the permission";
  expect(messages()).toEqual([`service ai/vllm: endpoint slices, watch: ${failure}`]);
  expect(recorder.recoveries).toBe(0);
  api.faults.watch.length = 0;
  await settle(minute);
  put(3);
  await settle();
  expect(latest()).toBe(ids(3));
  expect(recorder.recoveries).toBe(1);
});

test.each([
  ["a status", { status: 500 }, "status 500: as requested"],
  [
    "a refusal",
    { status: 403, body: '{"message":"pods is forbidden"}' },
    "the service account lacks the permission: pods is",
  ],
  ["what is no JSON", { status: 200, body: "<html>" }, "the answer is not JSON"],
  ["what is no list", { status: 200, body: '{"metadata":{}}' }, "the answer is not a list"],
  [
    "a list with something that is no object",
    { status: 200, body: '{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a"}}]}' },
    "the list contains an item that is not an object",
  ],
  ["a broken connection", "drop" as const, "The engine could not be reached."],
])("a list that fails with %s is asked for again, and said once", async (_, fault, message) => {
  const { api, start, settle, latest, messages, recorder } = await createRig({ starts: false });
  for (let at = 0; at < 5; at++) api.faults.list.push(fault);
  await start();
  expect(recorder.lists).toEqual([""]);
  await settle(minute);
  expect(latest()).toBe(ids(1));
  expect(messages()[0]).toContain(message);
  expect(messages().filter((one) => !one.includes("no list yet"))).toHaveLength(1);
  expect(recorder.recoveries).toBe(1);
});

test("a page of 32 MiB is read, one byte more is a failure", async () => {
  const list = (padding: string) => JSON.stringify({ metadata: { resourceVersion: "1001" }, items: [], padding });
  const maxBytes = 32 * 1024 * 1024;
  for (const more of [0, 1]) {
    const { api, start, messages } = await createRig({ starts: false });
    api.faults.list.push({ status: 200, body: list("x".repeat(maxBytes + more - list("").length)) });
    await start();
    expect(messages()).toHaveLength(more);
    if (more > 0) expect(messages()[0]).toContain(`The answer is longer than ${maxBytes} bytes.`);
  }
});

test("a server that is away at the start holds it up for five seconds, not for ever", async () => {
  const { api, start, settle, time, latest, messages, recorder } = await createRig({ starts: false });
  for (let at = 0; at < 3; at++) api.faults.list.push("hang");
  await start();
  expect(time.clock.nowMs()).toBeGreaterThanOrEqual(5_000);
  expect(time.clock.nowMs()).toBeLessThan(6_000);
  expect(recorder.lists).toEqual([""]);
  expect(messages()).toEqual(["service ai/vllm: endpoint slices, list: no list yet"]);
  await settle(minute);
  expect(latest()).toBe(ids(1));
  expect(recorder.recoveries).toBe(1);
});

test("a failing server is asked at growing distances up to 30 seconds, and its wish for more is granted up to 60", async () => {
  const { api, start, settle, lists } = await createRig({ starts: false });
  for (let at = 0; at < 100; at++) api.faults.list.push({ status: 500 });
  await start();
  await settle(10 * minute);
  const inTenMinutes = lists();
  expect(inTenMinutes).toBeGreaterThan(20);
  expect(inTenMinutes).toBeLessThan(50);
  api.faults.list.length = 0;
  for (let at = 0; at < 100; at++) api.faults.list.push({ status: 429, headers: { "retry-after": "9999" } });
  await settle(minute);
  const before = lists();
  await settle(10 * minute);
  expect(lists() - before).toBe(10);
});

test("a failure leaves the list that was there", async () => {
  const { api, current, settle, recorder, latest, lists } = await createRig();
  api.compact();
  for (let at = 0; at < 10; at++) api.faults.list.push({ status: 500 });
  current().end();
  await settle(minute);
  expect(lists()).toBeGreaterThan(5);
  expect(latest()).toBe(ids(1));
  await settle(10 * minute);
  expect(recorder.lists).toEqual(["", ids(1)]);
  expect(recorder.recoveries).toBe(1);
});

test("after a stop nothing is asked, said or planned, whatever it was doing", async () => {
  for (const moment of ["watch", "list", "pause"] as const) {
    const { api, source, current, put, settle, time, recorder, lists, watches } = await createRig();
    if (moment !== "watch") {
      for (let at = 0; at < 9; at++) api.faults.list.push(moment === "list" ? "hang" : { status: 500 });
      api.compact();
      current().end();
      await settle(2_000);
    }
    await source.stop();
    const asked = [lists(), watches()];
    const said = recorder.errors.length;
    put(2);
    await settle(10 * minute);
    expect([lists(), watches()]).toEqual(asked);
    expect(recorder.lists).toEqual(["", ids(1)]);
    expect(recorder.errors).toHaveLength(said);
    expect(time.pendingCount).toBe(0);
    expect(api.watches.size).toBe(0);
  }
});
