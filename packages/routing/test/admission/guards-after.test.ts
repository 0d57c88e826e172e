/**
 * Each guard that keeps requests waiting, or refuses them, after its cause has gone: the same requests go in the same shares as at
 * a router that never saw the cause, within the time that the guard states.
 */

import { expect, test } from "vitest";
import { maxBackoffMs, noFleetUsage, rescanMs } from "../../src/admission/index.ts";
import { recheckEveryMs } from "../../src/admission/parked-requests.ts";
import { createRig, full, type Rig, type RigOptions, testClass } from "./rig.ts";

/** What a row may change about a router while it runs. */
interface Subject extends Rig {
  /** The least counter of tenants that wait at other routers. */
  neediest: number;
  /** Tokens that other routers have served to tenant `a`. */
  elsewhere: number;
  fitsInMemory: boolean;
}

function subject(options: RigOptions): Subject {
  const state = { neediest: Number.POSITIVE_INFINITY, elsewhere: 0, fitsInMemory: true };
  const fleet = {
    ...noFleetUsage,
    elsewhere: (_: string, tenant: string) => ({ tokens: tenant === "a" ? state.elsewhere : 0, lift: 0, waits: false }),
    neediest: () => state.neediest,
  };
  return Object.assign(state, createRig({ targets: 1, fleet, ...options }));
}

/** Requests of two tenants and two classes that come at once. @returns how many of each kind went in the first half, or at all */
function traffic(rig: Subject): Record<string, number> {
  const { length } = rig.went;
  rig.fill();
  const kinds = [
    { name: "first", tenant: "b", className: "default" },
    { name: "second", tenant: "a", className: "default" },
    { name: "low", tenant: "a", className: "low" },
  ];
  const sent = Array.from({ length: 20 }, () =>
    kinds.map(({ name, ...request }) => rig.send(name, request, () => rig.fitsInMemory)),
  ).flat();
  sent.push(rig.send("due", { className: "default", deadlineMs: 300 }));
  for (let count = 0; count < 30; count++) rig.done(0);
  const went = rig.went.slice(length);
  const refused = sent.filter(({ refusal }) => refusal !== undefined).length;
  const countOf = (name: string): number => went.filter((other) => other === name).length;
  return {
    refused,
    waiting: rig.admission.parked,
    ...Object.fromEntries(["first", "second", "low"].map((name) => [name, countOf(name)])),
  };
}

/** Requests of one kind go while nobody else wants anything. */
function goAlone(rig: Subject, request: { readonly tenant?: string; readonly className?: string }, count = 200): void {
  for (let sent = 0; sent < count; sent++) {
    rig.send("alone", request);
    rig.time.advance(20);
    rig.done(0);
  }
}

interface Guard {
  readonly guard: string;
  readonly options?: RigOptions;
  readonly withinMs: number;
  /** Brings the cause about, and shows that the guard acts. @returns ends it */
  begin(rig: Subject): () => void;
}

const equalClasses = [testClass("default", { share: 0.5 }), testClass("low", { share: 0.5 })];
const classes = [testClass("default"), testClass("low", { share: 0.1 })];
const wide = [testClass("default", { maxPendingTokens: 10_000 }), testClass("low", { share: 0.1 })];
const parking = [testClass("default", { maxColdWaitMs: 60_000 }), testClass("low", { share: 0.1 })];

/** A request leaves capacity to a tenant of another router. @returns has that tenant wait no more */
function backOff(rig: Subject): () => void {
  rig.elsewhere = 100_000;
  rig.neediest = 0;
  rig.targets[0]!.load.pendingPrefillTokens = 1;
  rig.send("backs off", { tenant: "a" });
  expect(rig.went).toEqual([]);
  return () => {
    rig.neediest = Number.POSITIVE_INFINITY;
    rig.elsewhere = 0;
  };
}

const guards: readonly Guard[] = [
  {
    guard: "saturated engines",
    withinMs: rescanMs,
    begin(rig) {
      rig.fill();
      const { ticket } = rig.send("waits");
      expect(ticket?.isWaiting).toBe(true);
      return () => rig.unload();
    },
  },
  {
    guard: "no engine at all",
    options: { holdMs: 60_000 },
    withinMs: rescanMs,
    begin(rig) {
      rig.targets[0]!.usable = false;
      expect(rig.send("held").ticket?.isWaiting).toBe(true);
      return () => {
        rig.targets[0]!.usable = true;
      };
    },
  },
  {
    guard: "memory that a cold prompt would evict",
    options: { settings: { classes: parking } },
    withinMs: recheckEveryMs,
    begin(rig) {
      rig.fitsInMemory = false;
      rig.send("cold", {}, () => rig.fitsInMemory);
      expect(rig.admission.parked).toBe(1);
      return () => {
        rig.fitsInMemory = true;
      };
    },
  },
  {
    guard: "a needier tenant at another router",
    options: { settings: { classes: wide } },
    withinMs: rescanMs,
    begin: backOff,
  },
  {
    // It has ended without a word. What it reported has a lease of seconds.
    guard: "a needier tenant at a router that is gone",
    options: { settings: { classes: wide } },
    withinMs: 0,
    begin(rig) {
      const end = backOff(rig);
      return () => {
        rig.time.advance(maxBackoffMs + 2 * rescanMs);
        expect(rig.went).toEqual(["backs off"]);
        end();
      };
    },
  },
  {
    // A class with a share had nothing to do. It would go first until it had its share of all that the other was served.
    guard: "the share of a class, beside one that was alone",
    withinMs: 0,
    begin(rig) {
      goAlone(rig, { className: "default" });
      return () => {};
    },
  },
  {
    guard: "the deficit of a class that was alone",
    options: { settings: { classes: equalClasses, classScheduling: "deficit" } },
    withinMs: 0,
    begin(rig) {
      goAlone(rig, { className: "low" });
      return () => {};
    },
  },
  {
    guard: "the service of a tenant that was alone",
    withinMs: 0,
    begin(rig) {
      goAlone(rig, { tenant: "a" });
      return () => {};
    },
  },
  {
    guard: "the service of a tenant that waits at another router only",
    withinMs: 0,
    begin(rig) {
      rig.elsewhere = 200_000;
      rig.neediest = 200_000;
      return () => {};
    },
  },
  {
    // Clients gave up. How slowly that queue moved was believed of the next one for most of a minute.
    guard: "a queue that hardly moved",
    withinMs: 0,
    begin(rig) {
      rig.fill();
      rig.send("slow");
      rig.time.advance(30_000);
      rig.done(0);
      const left = Array.from({ length: 20 }, () => rig.send("gives up"));
      rig.time.advance(1_000);
      expect(rig.send("hopeless", { deadlineMs: 300 }).refusal).toMatch(/^deadline_missed/);
      return () => {
        for (const { ticket } of left) ticket?.leave();
        rig.targets[0]!.load.pendingPrefillTokens = full;
        expect(rig.send("due", { deadlineMs: 300 }).refusal).toBeUndefined();
        rig.unload();
      };
    },
  },
];

test.each(guards)("requests go as if it had never been once the cause of $guard has gone", ({ options, ...row }) => {
  const settings = { classes, ...options?.settings };
  const rig = subject({ ...options, settings });
  const end = row.begin(rig);
  end();
  rig.time.advance(row.withinMs);
  expect(rig.admission.queued + rig.admission.parked).toBe(0);
  const expected = traffic(subject({ ...options, settings }));
  const found = traffic(rig);
  for (const [kind, count] of Object.entries(expected)) {
    expect(Math.abs(found[kind]! - count), `${kind}: ${found[kind]} for ${count}`).toBeLessThanOrEqual(1);
  }
});
