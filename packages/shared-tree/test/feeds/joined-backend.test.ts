import { asRouterId, silentLogger, silentMeter } from "@espalier/core";
import type { Backend, BackendDescription, Member } from "@espalier/mesh";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { joinedBackend, Ownership } from "../../src/feeds/ownership.ts";
import { feedsWith } from "./fleet.ts";

const memberOf = (name: string): Member => ({
  origin: { router: asRouterId(name), epoch: 1 },
  ...{ state: "alive", isDraining: false, isLinked: true, unreachable: [] },
});

/** A backend that a test moves. */
class FakeBackend implements Backend {
  readonly kind = "mesh";
  readonly bufferedBytes = 0;
  waitingFor: readonly string[] = ["peers"];
  isStarted = Promise.resolve();
  readonly #notifications: string[];
  #members: readonly Member[] = [];
  #onMembers = (): void => {};

  constructor(notifications: string[]) {
    this.#notifications = notifications;
  }

  members(): readonly Member[] {
    return this.#members;
  }

  onMembers(listener: () => void) {
    this.#onMembers = listener;
    return () => {};
  }

  /** Who lives from here on. */
  setMembers(...names: readonly string[]): void {
    this.#members = names.map(memberOf);
    this.#onMembers();
  }

  async start(): Promise<void> {
    this.#notifications.push("backend starts");
    await this.isStarted;
  }

  async leave(): Promise<void> {
    this.#notifications.push("backend leaves");
  }

  async stop(): Promise<void> {
    this.#notifications.push("backend stops");
  }

  setDraining(): void {}

  setUnreachable(): void {}

  describe(): BackendDescription {
    return { kind: this.kind, address: null, members: [], refused: [], waitingFor: this.waitingFor };
  }
}

/** A backend, a replica and an ownership, and what they were told. */
function rig() {
  const time = createVirtualTime();
  const notifications: string[] = [];
  const say = (line: string) => () => void notifications.push(line);
  const backend = new FakeBackend(notifications);
  let claimsListener: (target: string) => void = () => {};
  const replica = {
    setMembers: (given: readonly Member[]) => {
      notifications.push(`members of the replica: ${given.map(({ origin }) => origin.router).join(" ") || "none"}`);
    },
    feeds: {
      onClaims(listener: (target: string) => void) {
        claimsListener = listener;
        return () => {};
      },
    },
  };
  const ownership = {
    start: say("ownership starts"),
    stop: say("ownership stops"),
    membersChanged: say("ownership: members"),
    claimsChanged: (target: string) => void notifications.push(`ownership: claims of ${target}`),
  } as unknown as Ownership;
  const parts = { backend, replica, ownership, scheduler: time.scheduler };
  return {
    time,
    notifications,
    backend,
    parts,
    joined: joinedBackend(parts),
    claim: (target: string) => claimsListener(target),
  };
}

test("ownership starts once the backend waits for nothing, and is told who lives before that", async () => {
  const { joined, notifications, time, backend } = rig();
  await joined.start();
  expect(notifications).toEqual(["backend starts", "members of the replica: none", "ownership: members"]);
  time.advance(5_000);
  backend.waitingFor = ["documents"];
  time.advance(5_000);
  expect(notifications).not.toContain("ownership starts");
  backend.waitingFor = [];
  time.advance(20);
  expect(notifications.filter((line) => line === "ownership starts")).toHaveLength(1);
  expect(time.pendingCount).toBe(0);
  backend.waitingFor = ["documents"];
  time.advance(5_000);
  expect(notifications.filter((line) => line.startsWith("ownership s"))).toEqual(["ownership starts"]);
});

test("ownership starts at once where the backend waits for nothing", async () => {
  const { joined, notifications, backend, time } = rig();
  backend.waitingFor = [];
  await joined.start();
  expect(notifications.at(-1)).toBe("ownership starts");
  expect(time.pendingCount).toBe(0);
});

test("ownership does not start before the backend has", async () => {
  const { joined, notifications, backend, time } = rig();
  backend.waitingFor = [];
  let finish = (): void => {};
  backend.isStarted = new Promise((resolve) => {
    finish = resolve;
  });
  const started = joined.start();
  time.advance(5_000);
  expect(notifications).toEqual(["backend starts"]);
  finish();
  await started;
  expect(notifications.at(-1)).toBe("ownership starts");
});

test("who comes and goes is told to the replica first: decisions read the claims of the living", async () => {
  const { joined, notifications, backend } = rig();
  await joined.start();
  notifications.length = 0;
  backend.setMembers("b", "c");
  backend.setMembers("c");
  expect(notifications).toEqual([
    ...["members of the replica: b c", "ownership: members"],
    ...["members of the replica: c", "ownership: members"],
  ]);
});

test("claims that change are told to the ownership, target by target", async () => {
  const { joined, notifications, claim } = rig();
  await joined.start();
  notifications.length = 0;
  claim("engine-1");
  claim("engine-2");
  expect(notifications).toEqual(["ownership: claims of engine-1", "ownership: claims of engine-2"]);
});

test("at the end no feed is claimed any more, then it says goodbye, and then the backend stops", async () => {
  const { joined, notifications, backend } = rig();
  backend.waitingFor = [];
  await joined.start();
  notifications.length = 0;
  await joined.stop();
  expect(notifications).toEqual(["ownership stops", "backend leaves", "backend stops"]);
});

test("a router that ends while it still waits never starts its ownership", async () => {
  const { joined, notifications, time, backend } = rig();
  await joined.start();
  time.advance(100);
  await joined.stop();
  expect(time.pendingCount).toBe(0);
  backend.waitingFor = [];
  time.advance(1_000);
  expect(notifications).not.toContain("ownership starts");
});

test("a backend that cannot start has it fail with the same error, and nothing is started", async () => {
  const { joined, notifications, backend, time } = rig();
  backend.isStarted = Promise.reject(new Error("the port is taken"));
  await expect(joined.start()).rejects.toThrow("the port is taken");
  time.advance(1_000);
  expect([notifications, time.pendingCount]).toEqual([["backend starts"], 0]);
});

test("a router that joins takes no feed that another one has claimed, for it decides when it knows that", async () => {
  const { parts, backend, time } = rig();
  const roles: string[] = [];
  const origin = { router: asRouterId("b"), epoch: 1 };
  let isKnown = false;
  const claim = { stamp: 1, quality: "complete", state: "live", reason: "", unusable: null } as const;
  const ownership = new Ownership({
    self: () => ({ router: asRouterId("a"), epoch: 1 }),
    ...{ clock: time.clock, scheduler: time.scheduler, meter: silentMeter, logger: silentLogger },
    members: () => backend.members(),
    feeds: feedsWith((target) => (isKnown ? [{ origin, claim: { ...claim, target } }] : [])),
    onRole: (target, role) => void roles.push(`${role} of ${target}`),
  });
  for (let engine = 0; engine < 8; engine++) ownership.addTarget(`engine-${engine}`);
  await joinedBackend({ ...parts, ownership }).start();
  backend.setMembers("b");
  time.advance(5_000);
  expect(roles).toEqual([]);
  isKnown = true;
  backend.waitingFor = [];
  time.advance(100);
  expect(roles.length).toBeGreaterThan(0);
  expect(roles.filter((role) => role.startsWith("owner"))).toEqual([]);
});

test("a router that ends while its backend still starts joins nothing", async () => {
  const { joined, notifications, time, backend } = rig();
  let isUp = (): void => {};
  backend.isStarted = new Promise((resolve) => {
    isUp = resolve;
  });
  backend.waitingFor = [];
  const starting = joined.start();
  await joined.stop();
  isUp();
  await starting;
  time.advance(1_000);
  expect(notifications).toEqual(["backend starts", "ownership stops", "backend leaves", "backend stops"]);
});
