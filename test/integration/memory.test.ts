/** Requests that wait until an engine need not drop for them what others are expected to come back for. */
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { cacheRouter, createMovableClock, publishingSims, untilHeard } from "./cache-rig.ts";
import { ask, tokensOf } from "./cached-turns.ts";
import { openPost } from "./client.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const thinkMs = 100_000;
const people = 12;

const completion = (prompt: readonly number[]) => ({ model: "tiny", prompt, max_tokens: 1 });

interface MemoryReport {
  readonly maxColdWaitMs: number;
  readonly isParked: boolean;
  readonly losses: readonly { readonly key: string; readonly share: number }[];
}

async function memoryOf(router: RunningRouter, prompt: readonly number[]): Promise<MemoryReport | null> {
  const { status, json, text } = await router.admin("POST", "/admin/explain", completion(prompt));
  expect([status, text]).toEqual([200, text]);
  return json.memory as MemoryReport | null;
}

/** A router that has seen people go on with their conversations, before an engine of 400 blocks that is full of them. */
async function withFullMemory(admission: object) {
  const sims = await publishingSims(rig, 1, { parameters: { blockCount: 400 } });
  const clock = createMovableClock();
  const router = await cacheRouter(rig, sims, { clock, config: { admission } });
  for (let turn = 0; turn < 3; turn++) {
    for (let person = 0; person < people; person++) await turnOf(router, person, turn);
    clock.advance(turn < 2 ? thinkMs : 0);
  }
  await ask(router, "/v1/completions", completion(tokensOf(500, 16 * 280)));
  await untilHeard(router, sims);
  return { router, clock };
}

const turnOf = (router: RunningRouter, person: number, turn: number) =>
  ask(router, "/v1/completions", completion(tokensOf(person, 64 + 32 * turn)));

const cold = tokensOf(900, 2_400);

test("a cold prompt is parked while people are expected back, delays nobody, and goes when they are not", async () => {
  const { router, clock } = await withFullMemory({ classes: [{ name: "default", "max-cold-wait": "5m" }] });
  expect(await memoryOf(router, cold)).toMatchObject({ maxColdWaitMs: 300_000, isParked: true });
  const held = openPost(`${router.url}/v1/completions`, completion(cold));
  await waitFor(async () => (await router.metrics()).sum("espalier_admission_parked_requests") === 1, {
    what: "a hold",
  });
  const warm = await turnOf(router, 3, 3);
  expect(warm.cached).toBeGreaterThan(100);
  expect((await router.metrics()).sum("espalier_admission_parked_requests")).toBe(1);
  clock.advance(2 * thinkMs);
  const { statusCode, headers } = await held.head;
  expect(statusCode).toBe(200);
  expect(Number(headers["x-espalier-queued-ms"])).toBeGreaterThan(2 * thinkMs);
  const metrics = await router.metrics();
  expect(metrics.sum("espalier_admission_parked_requests")).toBe(0);
  expect(metrics.sum("espalier_admission_memory_wait_seconds_count")).toBe(1);
  expect(metrics.sum("espalier_admission_wait_seconds_count")).toBe(0);
});

test("a client that is tired of waiting leaves, and one with a deadline need not wait", async () => {
  const { router } = await withFullMemory({ classes: [{ name: "default", "max-cold-wait": "5m" }] });
  const held = openPost(`${router.url}/v1/completions`, completion(cold));
  held.head.catch(() => {});
  await waitFor(async () => (await router.metrics()).sum("espalier_admission_parked_requests") === 1, {
    what: "a hold",
  });
  held.destroy();
  await waitFor(async () => (await router.metrics()).sum("espalier_admission_parked_requests") === 0, {
    what: "its end",
  });
  const due = openPost(`${router.url}/v1/completions`, completion(cold), { "x-espalier-deadline-ms": "60000" });
  const { statusCode, headers } = await due.head;
  expect([statusCode, headers["x-espalier-queued-ms"]]).toEqual([200, undefined]);
});

test("without a max cold wait nobody waits for memory, and nothing is said of it", async () => {
  const { router } = await withFullMemory({});
  expect(await memoryOf(router, cold)).toBeNull();
  const turn = await ask(router, "/v1/completions", completion(cold));
  expect(turn.cached).toBe(0);
  expect((await router.metrics()).sum("espalier_admission_memory_wait_seconds_count")).toBe(0);
});
