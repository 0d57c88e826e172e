import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { quietSims } from "./cache-rig.ts";
import { chat, type Json, post } from "./client.ts";
import { type EngineLike, joinRouter, meshRouters, untilLinked } from "./mesh-rig.ts";
import { createRig, type RunningRouter, type Sim } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const turnOf = (session: string): Json => chat({ user: session, max_tokens: 1 });

const options = { tokenizes: false, config: { policy: "sticky" } };

const stickyRouters = (count: number, engines: readonly EngineLike[]): Promise<readonly RunningRouter[]> =>
  meshRouters(rig, count, engines, options);

/** The engine that answers a turn of a session. */
async function answered(router: RunningRouter, session: string): Promise<string> {
  const { status, headers } = await post(`${router.url}/v1/chat/completions`, turnOf(session));
  expect([status, headers["x-espalier-policy"]]).toEqual([200, "sticky"]);
  return String(headers["x-espalier-engine"]);
}

/** Why a router would send the session's next turn where, or only where when it is bound there. */
async function reasonFor(router: RunningRouter, session: string): Promise<string> {
  const { status, json } = await router.admin("POST", "/admin/explain", turnOf(session));
  expect(status).toBe(200);
  const { choice, reason, candidates } = json as {
    readonly choice: { readonly key: string };
    readonly reason: string;
    readonly candidates: readonly { readonly key: string; readonly terms: { readonly bound?: number } }[];
  };
  if (reason !== "session_bound") return reason;
  expect(candidates.filter(({ terms }) => terms.bound === 1).map(({ key }) => key)).toEqual([choice.key]);
  return choice.key;
}

/** Waits until all routers have a session bound to the same engine. */
async function agreed(routers: readonly RunningRouter[], session: string, engines: readonly Sim[]): Promise<string> {
  let engine: string | undefined;
  const isAgreed = async (): Promise<boolean> => {
    const seen = new Set(await Promise.all(routers.map((router) => reasonFor(router, session))));
    engine = engines.find(({ id }) => seen.size === 1 && seen.has(id))?.id;
    return engine !== undefined;
  };
  await waitFor(isAgreed, { what: `one engine for ${session} at every router` });
  return engine!;
}

test("a session whose turns go round three routers stays on one engine", async () => {
  const sims = await quietSims(rig, 4);
  const routers = await stickyRouters(3, sims);
  for (const session of ["one", "two", "three"]) {
    const first = await answered(routers[0]!, session);
    expect(await agreed(routers, session, sims)).toBe(first);
    for (let turn = 1; turn < 7; turn++) expect(await answered(routers[turn % 3]!, session)).toBe(first);
  }
});

test("first turns of a session at three routers at the same time converge on one engine", async () => {
  const sims = await quietSims(rig, 4);
  const routers = await stickyRouters(3, sims);
  for (let number = 0; number < 5; number++) {
    const session = `at once ${number}`;
    const firsts = await Promise.all(routers.map((router) => answered(router, session)));
    const engine = await agreed(routers, session, sims);
    expect(firsts).toContain(engine);
    expect(await Promise.all(routers.map((router) => answered(router, session)))).toEqual([engine, engine, engine]);
  }
});

test("when an engine goes, its sessions move to the same other ones at all routers, and the rest stay", async () => {
  const sims = await quietSims(rig, 3);
  const routers = await stickyRouters(3, sims);
  const sessions = Array.from({ length: 9 }, (_, number) => `session ${number}`);
  const before = new Map<string, string>();
  for (const [at, session] of sessions.entries()) {
    await answered(routers[at % 3]!, session);
    before.set(session, await agreed(routers, session, sims));
  }
  const gone = before.get(sessions[0]!)!;
  await sims.find(({ id }) => id === gone)!.stop();
  const left = sims.filter(({ id }) => id !== gone);

  await Promise.all(sessions.map((session, at) => answered(routers[(at + 1) % 3]!, session)));
  for (const session of sessions) {
    const engine = await agreed(routers, session, left);
    if (before.get(session) !== gone) expect(engine).toBe(before.get(session));
    expect(await answered(routers[2]!, session)).toBe(engine);
  }
});

test("a router that joins later knows the sessions that there are", async () => {
  const sims = await quietSims(rig, 3);
  const routers = await stickyRouters(2, sims);
  const sessions = ["one", "two", "three"];
  const engines = await Promise.all(sessions.map((session, at) => answered(routers[at % 2]!, session)));
  const mesh = { "router-id": "router-late" };
  const late = await joinRouter(rig, routers[0], sims, { ...options, mesh });
  await untilLinked([...routers, late]);
  for (const [at, session] of sessions.entries()) {
    expect(await agreed([...routers, late], session, sims)).toBe(engines[at]);
    expect(await answered(late, session)).toBe(engines[at]);
  }
});

test("one router alone binds sessions for itself, and counts why requests go where they go", async () => {
  const sims = await quietSims(rig, 3);
  const router = await rig.router({ engines: sims.map(({ url }) => url), config: options.config });
  expect(await reasonFor(router, "own")).toBe("session_new");
  const first = await answered(router, "own");
  for (let turn = 0; turn < 3; turn++) expect(await answered(router, "own")).toBe(first);
  expect(await reasonFor(router, "own")).toBe(first);
  const decisions = await router.metrics();
  expect(
    ["session_new", "session_bound"].map((reason) => decisions.sum("espalier_decisions_total", { reason })),
  ).toEqual([1, 3]);
});

test("with fewest-sessions, sessions that begin at three routers spread evenly", async () => {
  const sims = await quietSims(rig, 3);
  const config = { policy: { name: "sticky", "fewest-sessions": 1 } };
  const routers = await meshRouters(rig, 3, sims, { tokenizes: false, config });
  const begun = new Map<string, number>();
  for (let number = 0; number < 9; number++) {
    await answered(routers[number % 3]!, `fair ${number}`);
    const engine = await agreed(routers, `fair ${number}`, sims);
    begun.set(engine, (begun.get(engine) ?? 0) + 1);
  }
  expect([...begun.values()]).toEqual([3, 3, 3]);
});
