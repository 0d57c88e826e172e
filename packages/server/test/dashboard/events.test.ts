import { afterEach, expect, test } from "vitest";
import { createEventLog, type EventLogOptions, maxEvents } from "../../src/admin/events.ts";
import { createLostRouters } from "../../src/mesh/fleet-watch.ts";
import { specOf, startScriptedFleet } from "../prefix/scripted-fleet.ts";

const ends: (() => void)[] = [];
afterEach(() => {
  for (const end of ends.splice(0)) end();
});

type Member = ReturnType<EventLogOptions["members"]>[number];

const keptMs = 900_000;

async function start() {
  const scripted = await startScriptedFleet({ health: { intervalMs: 1_000 } });
  const { time, fleet } = scripted;
  const lost = createLostRouters(time.clock);
  const seen = {
    members: [] as readonly Member[],
    owner: undefined as string | undefined,
    reload: undefined as ReturnType<EventLogOptions["lastReload"]>,
    isDraining: false,
    /** In place of the list that the members give. */
    lost: undefined as ReturnType<EventLogOptions["lost"]> | undefined,
  };
  const log = createEventLog({
    ...{ router: "r1", fleet, keptMs, ...time },
    members: () => seen.members,
    lost: () => {
      lost.update(seen.members.map((each) => ({ ...each, address: null })));
      return seen.lost ?? lost.list();
    },
    ownerOf: () => seen.owner,
    lastReload: () => seen.reload,
    isDraining: () => seen.isDraining,
  });
  ends.push(() => log.stop());
  time.advance(10_000);
  const all = () => log.since(0).map(({ kind, subject, detail }) => [kind, subject, detail].join(" ").trim());
  /** What one look more has found. */
  const next = (): readonly string[] => {
    const before = log.since(0).length;
    time.advance(1_000);
    return all().slice(before);
  };
  return { ...scripted, seen, log, all, next };
}

const member = (router: string, changes: Partial<Member> = {}): Member => ({
  ...{ router, epoch: 1, state: "alive", isDraining: false, ...changes },
});

test("an engine that goes down and comes back, is drained, and leaves; with the reasons", async () => {
  const { apply, answers, time, fleet, all } = await start();
  await apply(specOf("e1"));
  answers["e1"] = { "/health": "refused" };
  await time.advanceAsync(10_000);
  answers["e1"] = {};
  await time.advanceAsync(10_000);
  fleet.setDraining(specOf("e1").id, true);
  fleet.setDraining(specOf("e1").id, false);
  await apply();
  expect(all().map((line) => line.split(" ").slice(0, 2).join(" "))).toEqual([
    ...["router_started r1", "engine_up e1", "engine_down e1", "engine_up e1"],
    ...["engine_restarted e1", "engine_draining e1", "engine_undrained e1", "engine_removed e1"],
  ]);
  expect(all()[2]).toMatch(/^engine_down e1 \S/);
});

test("routers join, drain, restart, leave and are lost, once each", async () => {
  const { seen, next } = await start();
  seen.members = [member("r2"), member("r3")];
  expect(next()).toEqual(["router_joined r2", "router_joined r3"]);
  expect(next()).toEqual([]);
  seen.members = [member("r2", { isDraining: true }), member("r3", { epoch: 2 })];
  expect(next()).toEqual(["router_draining r2", "router_restarted r3"]);
  seen.members = [member("r2", { state: "left", isDraining: true }), member("r3", { epoch: 2, state: "suspect" })];
  expect(next()).toEqual(["router_left r2"]);
  seen.members = [member("r3", { epoch: 2, state: "down" })];
  expect(next()).toEqual(["router_lost r3"]);
  seen.members = [];
  expect(next()).toEqual([]);
  seen.members = [member("r3", { epoch: 3 })];
  expect(next()).toEqual(["router_joined r3"]);
  seen.members = [];
  expect(next()).toEqual(["router_lost r3"]);
});

// Symptom: a lost router had one time in its row and another one in the log. Mechanism: each looked at the members by itself.
test("a lost router has the time of the list of lost routers, and is sent to those who have asked since", async () => {
  const { seen, log, time, next } = await start();
  const sinceMs = time.clock.wallMs();
  expect(next()).toEqual([]);
  const askedMs = time.clock.wallMs();
  seen.lost = [{ router: "r2", sinceMs }];
  expect(next()).toEqual(["router_lost r2"]);
  expect(log.since(askedMs)).toEqual([{ kind: "router_lost", subject: "r2", detail: "", atMs: sinceMs }]);
  expect(next()).toEqual([]);
  seen.lost = [{ router: "r2", sinceMs: sinceMs + 1 }];
  expect(next()).toEqual(["router_lost r2"]);
});

test("another router that reads an engine's events has taken over, even if nobody read them in between", async () => {
  const { apply, seen, next } = await start();
  await apply(specOf("e1"));
  for (const owner of ["r1", undefined]) {
    seen.owner = owner;
    expect(next()).toEqual([]);
  }
  seen.owner = "r2";
  expect(next()).toEqual(["feed_taken_over e1 r1 → r2"]);
  expect(next()).toEqual([]);
});

test("reloads and their outcome, and the router's own drain", async () => {
  const { seen, next } = await start();
  seen.reload = { applied: ["retry"], needsRestart: ["mesh.port"], trigger: "file", atMs: 1 };
  expect(next()).toEqual(["reloaded r1 retry; needs a restart: mesh.port"]);
  seen.reload = { ...seen.reload, error: { code: "config_invalid", message: "Duplicate key" } };
  expect(next()).toEqual(["reload_failed r1 Duplicate key"]);
  seen.isDraining = true;
  expect(next()).toEqual(["router_draining r1"]);
  expect(next()).toEqual([]);
});

test("events are kept as long as the history, and one beyond the bound takes the place of the oldest", async () => {
  const { apply, fleet, time, log, all } = await start();
  await apply(specOf("e1"));
  const drain = (count: number): void => {
    for (let at = 0; at < count; at++) fleet.setDraining(specOf("e1").id, at % 2 === 0);
  };
  drain(maxEvents - 2);
  expect([all().length, all()[0]]).toEqual([maxEvents, "router_started r1"]);
  drain(1);
  expect([all().length, all()[0]]).toEqual([maxEvents, "engine_up e1"]);
  const latestMs = log.since(0).at(-1)!.atMs;
  expect(log.since(latestMs)).toEqual([]);
  time.advance(keptMs);
  expect(all()).toEqual([]);
  drain(2);
  expect(all()).toEqual(["engine_undrained e1"]);
});

test("engines and routers that are there when a router starts are no events, their failures are", async () => {
  const scripted = await startScriptedFleet();
  const members = [member("r2")];
  const log = createEventLog({
    ...{ router: "r1", fleet: scripted.fleet, keptMs, ...scripted.time },
    ...{
      members: () => members,
      lost: () => [],
      ownerOf: () => undefined,
      lastReload: () => undefined,
      isDraining: () => false,
    },
  });
  ends.push(() => log.stop());
  scripted.answers["e2"] = { "/health": "refused" };
  await scripted.apply(specOf("e1"), specOf("e2"));
  await scripted.time.advanceAsync(10_000);
  members.push(member("r3"));
  await scripted.time.advanceAsync(300_000);
  const kinds = log.since(0).map(({ kind, subject }) => `${kind} ${subject}`);
  expect(kinds[0]).toBe("router_started r1");
  expect(kinds.slice(1).sort()).toEqual(["engine_unreachable e2", "router_joined r3"]);
});

test("nothing is noted after the stop", async () => {
  const { log, seen, time, all } = await start();
  log.stop();
  seen.members = [member("r2")];
  time.advance(5_000);
  expect(all()).toEqual(["router_started r1"]);
});
