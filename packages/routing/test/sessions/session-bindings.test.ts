import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import {
  type BindingStore,
  createLocalBindings,
  createSessionBindings,
  dryRunSessions,
  maxEndedScopes,
  sessionScope,
} from "../../src/session-bindings.ts";

const ttlMs = 4_000;
const session = { model: "tiny", key: "one" };

/** Sessions over a store that counts what is written. */
function rig() {
  const { clock, ...time } = createVirtualTime();
  const store = createLocalBindings(clock);
  const written: string[] = [];
  const counting: BindingStore = {
    ...store,
    set(key, value, lastsMs) {
      written.push(value.split("\n")[1]!);
      store.set(key, value, lastsMs);
    },
  };
  const sessions = createSessionBindings(counting);
  return { time, store, written, sessions, send: (target: string) => sessions.sent(session, { target, ttlMs }) };
}

test("requests to where it is bound write nothing until a quarter of the time is over", () => {
  const { time, written, send } = rig();
  for (let turn = 0; turn < 100; turn++) {
    send("e1");
    time.advance(10);
  }
  expect(written).toEqual(["e1"]);
  time.advance(1);
  for (let turn = 0; turn < 3; turn++) send("e1");
  expect(written).toEqual(["e1", "e1"]);
});

test("a session that goes on stays bound for ever, and one that pauses for three quarters of the time at least", () => {
  const { time, sessions, send } = rig();
  for (let turn = 0; turn < 50; turn++) {
    send("e1");
    time.advance(999);
    expect(sessions.targetOf(session)).toBe("e1");
  }
  time.advance((ttlMs * 3) / 4 - 999);
  expect(sessions.targetOf(session)).toBe("e1");
  time.advance(ttlMs / 4);
  expect(sessions.targetOf(session)).toBeUndefined();
});

test("sessions of one key are apart by model, and what is bound besides sessions is none", () => {
  const { store, sessions, send } = rig();
  send("e1");
  store.set("one", "e7", ttlMs);
  store.set("tiny", "e7", ttlMs);
  expect(sessions.targetOf({ model: "small", key: "one" })).toBeUndefined();
  expect(sessions.targetOf({ model: "", key: "one" })).toBeUndefined();
  sessions.sent({ model: "small", key: "one" }, { target: "e2", ttlMs });
  expect([session, { model: "small", key: "one" }].map((one) => sessions.targetOf(one))).toEqual(["e1", "e2"]);
});

test("sessions of one key are apart by tenant and by cache salt, whatever the key says", () => {
  const { sessions } = rig();
  const scopes = [sessionScope("", undefined), sessionScope("ada", undefined), sessionScope("bob", undefined)];
  scopes.push(sessionScope("ada", "salt"), sessionScope("", "salt"), sessionScope('ada","salt', undefined));
  expect(new Set(scopes).size).toBe(6);
  for (const [at, scope] of scopes.entries()) {
    expect(sessions.targetOf({ ...session, scope })).toBeUndefined();
    sessions.sent({ ...session, scope }, { target: `e${at}`, ttlMs });
  }
  expect(scopes.map((scope) => sessions.targetOf({ ...session, scope }))).toEqual(scopes.map((_, at) => `e${at}`));
  // A client without a tenant cannot write itself into another one's scope.
  const [, ada] = scopes;
  for (const key of [`${ada}\none`, `\n${ada}\none`]) {
    expect(sessions.targetOf({ ...session, key })).toBeUndefined();
  }
});

test("sessions count at their target until they end, move or expire, and nothing else bound to it does", () => {
  const { time, store, sessions, send } = rig();
  send("e1");
  send("e1");
  sessions.sent({ model: "small", key: "two" }, { target: "e1", ttlMs });
  store.set("response", "e1", ttlMs);
  expect([sessions.count("e1"), sessions.count("e2")]).toEqual([2, 0]);
  send("e2");
  expect([sessions.count("e1"), sessions.count("e2")]).toEqual([1, 1]);
  sessions.endSession("two", ["small"]);
  expect([sessions.count("e1"), sessions.count("e2")]).toEqual([0, 1]);
  time.advance(ttlMs);
  expect(sessions.count("e2")).toBe(0);
});

test("quiet ones read what others bind, and bind nothing", () => {
  const { written, sessions, send } = rig();
  const quiet = dryRunSessions(sessions);
  quiet.sent(session, { target: "e1", ttlMs });
  expect([quiet.targetOf(session), written]).toEqual([undefined, []]);
  send("e2");
  quiet.sent(session, { target: "e1", ttlMs });
  expect(quiet.targetOf(session)).toBe("e2");
});

test("the end of a key ends its sessions in every scope that was bound here, and those of others without one", () => {
  const { clock } = createVirtualTime();
  const store = createLocalBindings(clock);
  const [sessions, others] = [createSessionBindings(store), createSessionBindings(store)];
  const scopes = Array.from({ length: maxEndedScopes + 1 }, (_, at) => ({
    ...{ ...session, scope: sessionScope("", `salt ${at}`) },
  }));
  const plain = { model: "small", key: "one" };
  const [oldest, ...rest] = scopes;
  for (const scoped of scopes) sessions.sent(scoped, { target: "e1", ttlMs });
  others.sent(plain, { target: "e2", ttlMs });
  others.sent({ ...session, key: "two" }, { target: "e3", ttlMs });

  dryRunSessions(sessions).endSession("one", ["small"]);
  expect(sessions.targetOf(plain)).toBe("e2");
  sessions.endSession("one", ["small", "absent"]);
  // One past the bound: the oldest scope expires by itself, and what is bound afterwards ends again.
  expect([oldest!, ...rest, plain].map((one) => sessions.targetOf(one)).filter(Boolean)).toEqual(["e1"]);
  expect(sessions.targetOf(oldest!)).toBe("e1");
  expect(sessions.targetOf({ ...session, key: "two" })).toBe("e3");
  sessions.sent(rest[0]!, { target: "e4", ttlMs });
  sessions.endSession("one", []);
  expect(sessions.targetOf(rest[0]!)).toBeUndefined();
});
