import { createSeededRandom } from "@espalier/core";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { type Answer, chat, openPost, post } from "./client.ts";
import { type HttpEngine, httpEngine, jsonEngine } from "./engines.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

function jsonEngines(count: number): Promise<readonly HttpEngine[]> {
  return Promise.all(Array.from({ length: count }, () => jsonEngine(rig, "{}")));
}

/** Engines that keep every request until the test is over. */
function silentEngines(count: number): Promise<readonly HttpEngine[]> {
  return Promise.all(Array.from({ length: count }, () => httpEngine(rig, () => {})));
}

const urls = (engines: readonly HttpEngine[]): string[] => engines.map(({ url }) => url);
const counts = (engines: readonly HttpEngine[]): number[] => engines.map(({ requests }) => requests.length);
const total = (engines: readonly HttpEngine[]): number => counts(engines).reduce((sum, count) => sum + count, 0);
const ask = (router: RunningRouter, fields = {}, headers = {}): Promise<Answer> =>
  post(`${router.url}/v1/chat/completions`, chat(fields), headers);

test("round_robin gives every engine its turn, and twice as many to one of twice the weight", async () => {
  const engines = await jsonEngines(3);
  const even = await rig.router({ engines: urls(engines), config: { policy: "round_robin" } });
  for (let i = 0; i < 12; i++) expect((await ask(even)).headers["x-espalier-policy"]).toBe("round_robin");
  expect(counts(engines)).toEqual([4, 4, 4]);

  const [heavy, light] = await jsonEngines(2);
  const weighted = await rig.router({
    engines: [{ url: heavy!.url, weight: 2 }, light!.url],
    config: { policy: "round_robin" },
  });
  for (let i = 0; i < 12; i++) await ask(weighted);
  expect(counts([heavy!, light!])).toEqual([8, 4]);
});

test("random spreads evenly in the long run", async () => {
  const engines = await jsonEngines(3);
  const random = createSeededRandom(7);
  const router = await rig.router({ engines: urls(engines), config: { policy: "random" }, random });
  for (let i = 0; i < 240; i++) await ask(router);
  // 80 each; five standard deviations are 37.
  for (const count of counts(engines)) expect(Math.abs(count - 80)).toBeLessThan(37);
});

test("two runs with one seed choose the same engines for the same requests, and another seed others", async () => {
  const engines = await jsonEngines(4);
  const run = async (policy: object): Promise<readonly string[]> => {
    const router = await rig.router({ engines: urls(engines), config: { policy } });
    const chosen: string[] = [];
    for (let turn = 0; turn < 24; turn++) {
      const { headers } = await ask(router, { user: `trajectory ${turn % 12}` });
      chosen.push(String(headers["x-espalier-engine"]));
    }
    return chosen;
  };
  for (const name of ["random", "sticky", "consistent_hashing"]) {
    const first = await run({ name, seed: 1 });
    expect(await run({ name, seed: 1 })).toEqual(first);
    if (name !== "consistent_hashing") expect(await run({ name, seed: 2 })).not.toEqual(first);
  }
});

test("least_connections keeps the requests in flight level", async () => {
  const engines = await silentEngines(3);
  const router = await rig.router({ engines: urls(engines), config: { policy: "least_connections" } });
  for (let sent = 1; sent <= 9; sent++) {
    openPost(`${router.url}/v1/chat/completions`, chat());
    await waitFor(() => total(engines) === sent, { what: `request ${sent}` });
    expect(Math.max(...counts(engines)) - Math.min(...counts(engines))).toBeLessThanOrEqual(1);
  }
  expect(counts(engines)).toEqual([3, 3, 3]);
});

test("power_of_two keeps the requests in flight nearly level", async () => {
  const engines = await silentEngines(3);
  const random = createSeededRandom(11);
  const router = await rig.router({ engines: urls(engines), config: { policy: "power_of_two" }, random });
  for (let sent = 1; sent <= 30; sent++) {
    openPost(`${router.url}/v1/chat/completions`, chat());
    await waitFor(() => total(engines) === sent, { what: `request ${sent}` });
  }
  expect(Math.max(...counts(engines)) - Math.min(...counts(engines))).toBeLessThanOrEqual(4);
});

test("least_tokens weighs prompts, not requests", async () => {
  const engines = await silentEngines(2);
  const router = await rig.router({ engines: urls(engines), config: { policy: "least_tokens" } });
  const url = `${router.url}/v1/chat/completions`;
  openPost(url, chat({ messages: [{ role: "user", content: "long ".repeat(10_000) }] }));
  await waitFor(() => total(engines) === 1, { what: "the long prompt" });
  const busy = engines.findIndex(({ requests }) => requests.length === 1);
  for (let sent = 2; sent <= 6; sent++) {
    openPost(url, chat());
    await waitFor(() => total(engines) === sent, { what: `request ${sent}` });
  }
  expect(engines[busy]?.requests).toHaveLength(1);
  expect(engines[1 - busy]?.requests).toHaveLength(5);
});

const hashing = { policy: "consistent_hashing" };
const sessions = Array.from({ length: 60 }, (_, at) => `session-${at}`);

/** Where each session's request goes. */
async function placement(router: RunningRouter, keyed: (session: string) => readonly [object, object]) {
  const places = new Map<string, string>();
  for (const session of sessions) {
    const [fields, headers] = keyed(session);
    const answer = await ask(router, fields, headers);
    expect(answer.status).toBe(200);
    places.set(session, String(answer.headers["x-espalier-engine"]));
  }
  return places;
}

const byHeader = (session: string): readonly [object, object] => [{}, { "x-session-id": session }];

test("consistent_hashing keeps a session on its engine, wherever its key stands", async () => {
  const engines = await jsonEngines(3);
  const router = await rig.router({ engines: urls(engines), config: hashing });
  const places = await placement(router, byHeader);

  expect(new Set(places.values()).size).toBe(3);
  const elsewhere: readonly ((session: string) => readonly [object, object])[] = [
    byHeader,
    (session) => [{}, { "x-espalier-session-id": session, "x-session-id": "passed over" }],
    (session) => [{}, { "x-smg-routing-key": session }],
    (session) => [{ session_id: session, user: "passed over" }, {}],
    (session) => [{ prompt_cache_key: session }, {}],
    (session) => [{ user: session }, { "x-session-id": "" }],
  ];
  for (const keyed of elsewhere) expect(await placement(router, keyed)).toEqual(places);
  expect((await router.metrics()).sum("espalier_decisions_total", { reason: "hash" })).toBe(7 * sessions.length);
});

test("prefix_hash keeps prompts of one beginning on one engine, however they go on, and spreads beginnings", async () => {
  const engines = await jsonEngines(3);
  const policy = { name: "prefix_hash", "prefix-tokens": 64, "load-factor": 0 };
  const router = await rig.router({ engines: urls(engines), config: { policy } });
  const homes = new Set<string>();
  // Ports are drawn, and with them who is whose home: of so many beginnings one engine gets none once in millions of runs.
  const beginnings = 40;
  for (let beginning = 0; beginning < beginnings; beginning++) {
    const places = new Set<string>();
    for (const end of ["a question", "another one ".repeat(200)]) {
      const content = `${`${beginning} is how this one begins. `.repeat(100)}${end}`;
      const answer = await ask(router, { messages: [{ role: "user", content }] });
      places.add(String(answer.headers["x-espalier-engine"]));
    }
    expect(places.size).toBe(1);
    for (const place of places) homes.add(place);
  }
  expect(homes.size).toBe(3);
  expect((await router.metrics()).sum("espalier_decisions_total", { policy: "prefix_hash", reason: "hash" })).toBe(
    2 * beginnings,
  );
});

test("two routers place the sessions alike", async () => {
  const engines = await jsonEngines(3);
  const one = await rig.router({ engines: urls(engines), config: hashing });
  const other = await rig.router({ engines: urls(engines).reverse(), config: hashing });
  expect(await placement(other, byHeader)).toEqual(await placement(one, byHeader));
});

test("when an engine goes down only its sessions move, and they come back with it", async () => {
  const sims = await rig.sims(3);
  const router = await rig.router({ engines: sims.map(({ url }) => url), config: hashing });
  const before = await placement(router, byHeader);
  const [victim] = sims;
  await victim!.fault({ kind: "unhealthy" });
  const state = async () => (await router.engines()).find(({ id }) => id === victim!.id)?.state;
  await waitFor(async () => (await state()) === "down", { what: "down engine" });

  const without = await placement(router, byHeader);

  for (const session of sessions) {
    if (before.get(session) === victim!.id) expect(without.get(session)).not.toBe(victim!.id);
    else expect(without.get(session)).toBe(before.get(session));
  }
  await victim!.clearFaults();
  await waitFor(async () => (await state()) === "up", { what: "engine that is up again" });
  expect(await placement(router, byHeader)).toEqual(before);
});

test("a session whose engine is past its load bound spills over, and only while it is", async () => {
  const engines = await silentEngines(2);
  const router = await rig.router({ engines: urls(engines), config: hashing });
  for (let sent = 1; sent <= 8; sent++) {
    openPost(`${router.url}/v1/chat/completions`, chat({ user: "one session" }));
    await waitFor(() => total(engines) === sent, { what: `request ${sent}` });
  }
  // 1.25 times an even share of four.
  expect(counts(engines).sort()).toEqual([3, 5]);
  expect((await router.metrics()).sum("espalier_decisions_total", { reason: "hash_overflow" })).toBe(3);
});

test("without a session key consistent_hashing takes the least loaded", async () => {
  const engines = await silentEngines(2);
  const router = await rig.router({ engines: urls(engines), config: hashing });
  for (let sent = 1; sent <= 6; sent++) {
    openPost(`${router.url}/v1/chat/completions`, chat());
    await waitFor(() => total(engines) === sent, { what: `request ${sent}` });
  }
  expect(counts(engines)).toEqual([3, 3]);
});

test("the places to look for a session key can be configured", async () => {
  const engines = await jsonEngines(3);
  const config = { ...hashing, "session-key": ["header:x-tenant", "body:metadata_key"] };
  const router = await rig.router({ engines: urls(engines), config });
  const places = await placement(router, (session) => [{}, { "X-Tenant": session }]);
  expect(new Set(places.values()).size).toBe(3);
  expect(await placement(router, (session) => [{ metadata_key: session, user: "ignored" }, {}])).toEqual(places);
});

// Coding agents number their sessions as they like: a key that two tenants share must not show one where the other is.
test("tenants and cache salts with the same session key have sessions of their own", async () => {
  const engines = await jsonEngines(3);
  const router = await rig.router({ engines: urls(engines), config: { policy: "sticky" } });
  const headers = { "x-claude-code-session-id": "one" };
  const turns: readonly (readonly [object, object])[] = [
    [{}, headers],
    [{}, { ...headers, "x-claude-code-agent-id": "a1" }],
    [{}, { ...headers, "x-espalier-tenant": "ada" }],
    [{}, { ...headers, "x-espalier-tenant": "bob" }],
    [{ cache_salt: "s" }, { ...headers, "x-espalier-tenant": "ada" }],
    [{ cache_salt: "s" }, headers],
  ];
  const reasons = async () => {
    const metrics = await router.metrics();
    return ["session_new", "session_bound"].map((reason) => metrics.sum("espalier_decisions_total", { reason }));
  };
  for (const [fields, sent] of turns) expect((await ask(router, fields, sent)).status).toBe(200);
  expect(await reasons()).toEqual([6, 0]);
  for (const [fields, sent] of turns) expect((await ask(router, fields, sent)).status).toBe(200);
  expect(await reasons()).toEqual([6, 6]);
});
