import { asRouterId } from "@espalier/core";
import type { Note, NoteChannel } from "@espalier/shared-tree";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import {
  type AdminPeersOptions,
  createAdminPeers,
  maxAdminOrigins,
  maxAdminPeers,
  pageTtlMs,
  readAdminNote,
  writeAdminNote,
} from "../../src/admin/admin-peers.ts";

function createTable() {
  const listeners = new Set<(note: Note) => void>();
  const posted: { readonly key: string; readonly bytes: Uint8Array }[] = [];
  const notes: NoteChannel = {
    post: (key, bytes) => posted.push({ key, bytes }) > 0,
    onNote(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
  const tell = (router: string, bytes: Uint8Array, key = "admin"): void => {
    const note = { origin: { router: asRouterId(router), epoch: 1 }, key, bytes, ageMs: 0 };
    for (const listener of listeners) listener(note);
  };
  return { notes, posted, tell, listeners };
}

function start(changes: Partial<AdminPeersOptions> = {}) {
  const made = createTable();
  const states = new Map<string, string>();
  const members = () => [...states].map(([router, state]) => ({ router, state }));
  const time = createVirtualTime();
  const peers = createAdminPeers({ notes: made.notes, members, localOnly: false, ...time, ...changes });
  const hear = (router: string, origin: string, state = "alive"): void => {
    states.set(router, state);
    made.tell(router, writeAdminNote(origin));
  };
  return { ...made, peers, states, hear, time };
}

test("origins of routers that live are told, each once", () => {
  const { peers, hear, states } = start();
  hear("r2", "http://r2:9090");
  hear("r3", "http://r3:9090", "suspect");
  hear("r4", "http://r4:9090", "down");
  hear("r5", "http://r5:9090", "left");
  hear("r6", "http://r2:9090");
  expect(peers.origins()).toEqual(["http://r2:9090", "http://r3:9090"]);
  states.set("r2", "down");
  expect([peers.origins(), peers.originOf("r4")]).toEqual([["http://r3:9090", "http://r2:9090"], "http://r4:9090"]);
});

test("a later word of a router holds, also that it has nothing to say", () => {
  const { peers, hear, tell } = start();
  hear("r2", "http://r2:9090");
  hear("r2", "http://r2:9999");
  expect(peers.originOf("r2")).toBe("http://r2:9999");
  tell("r2", Uint8Array.of(2, 1, 65));
  expect(peers.originOf("r2")).toBeUndefined();
});

test("pages of a router that is gone may read for an hour more, and nobody is sent to it", () => {
  const { peers, hear, states, time } = start();
  hear("r2", "http://r2:9090");
  hear("r3", "http://r3:9090", "down");
  // Whether anybody asks meanwhile makes no difference.
  time.advance(10 * pageTtlMs);
  states.set("r2", "down");
  expect([peers.origins(), peers.readers()]).toEqual([[], ["http://r2:9090"]]);
  time.advance(pageTtlMs - 60_000);
  expect(peers.readers()).toEqual(["http://r2:9090"]);
  time.advance(60_000);
  expect(peers.readers()).toEqual([]);
  states.set("r2", "alive");
  expect(peers.readers()).toEqual(["http://r2:9090"]);
});

test("notes about something else are passed over", () => {
  const { peers, tell, states } = start();
  states.set("r2", "alive");
  tell("r2", writeAdminNote("http://r2:9090"), "times/m");
  expect(peers.origins()).toEqual([]);
});

test("where no key is asked for, only this machine counts", () => {
  const { peers, hear } = start({ localOnly: true });
  hear("r2", "http://r2:9090");
  hear("r3", "http://127.0.0.1:9091");
  expect(peers.origins()).toEqual(["http://127.0.0.1:9091"]);
});

test("what is told is one note, and nothing that is no origin", () => {
  const { peers, posted } = start();
  peers.announce("not an origin");
  peers.announce("http://r1:9090/");
  expect(posted.map(({ key, bytes }) => [key, readAdminNote(bytes)])).toEqual([["admin", "http://r1:9090"]]);
});

test("a note that says nothing that can be used is none", () => {
  expect(readAdminNote(Uint8Array.of())).toBeUndefined();
  expect(readAdminNote(Uint8Array.of(1, 200))).toBeUndefined();
  expect(readAdminNote(Uint8Array.of(2, ...writeAdminNote("http://r1:9090").slice(1)))).toBeUndefined();
  expect(readAdminNote(writeAdminNote("http://r1/;script-src"))).toBeUndefined();
  // What a later version adds behind is not looked at.
  expect(readAdminNote(Uint8Array.of(...writeAdminNote("http://r1:9090"), 9, 9))).toBe("http://r1:9090");
});

test("so many routers are remembered, and so many origins allowed", () => {
  const { peers, hear } = start();
  for (let at = 0; at <= maxAdminPeers; at++) hear(`r${at}`, `http://r${at}:9090`);
  expect(peers.originOf(`r${maxAdminPeers - 1}`)).toBeDefined();
  expect(peers.originOf(`r${maxAdminPeers}`)).toBeUndefined();
  expect(peers.origins()).toHaveLength(maxAdminOrigins);
});

test("without a notes nobody is told and nobody known; after the end nothing is heard", () => {
  const alone = createAdminPeers({ notes: undefined, members: () => [], localOnly: false, ...createVirtualTime() });
  alone.announce("http://r1:9090");
  expect(alone.origins()).toEqual([]);
  const { peers, hear, listeners } = start();
  peers.stop();
  hear("r2", "http://r2:9090");
  expect([listeners.size, peers.originOf("r2")]).toEqual([0, undefined]);
});
