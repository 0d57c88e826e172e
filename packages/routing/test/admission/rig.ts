import { createSeriesMeter, createVirtualTime, type SeriesMeter, type VirtualTime } from "@espalier/testing";
import {
  type Admission,
  type AdmissionRequest,
  type AdmissionSettings,
  type AdmissionTarget,
  type AdmissionTicket,
  type ClassSettings,
  createAdmission,
  createAdmissionMeters,
  defaultAdmissionSettings,
  type FleetUsage,
  noFleetUsage,
  noPeerLoad,
  type PeerLoad,
} from "../../src/admission/index.ts";

/** An engine whose load a test sets. */
interface TestTarget extends AdmissionTarget {
  usable: boolean;
  readonly engine: { readonly id: string; role: string; weight: number };
  readonly load: { inFlight: number; yieldingInFlight: number; pendingPrefillTokens: number; pendingWorkMs: number };
  readonly signals: { waiting: number; kvUse: number; inFlightAtScrape: number; age: number; ageMs(): number };
}

function testTarget(index: number): TestTarget {
  const signals = {
    waiting: Number.NaN,
    kvUse: Number.NaN,
    inFlightAtScrape: Number.NaN,
    age: 0,
    ageMs: (): number => signals.age,
  };
  return {
    index,
    key: `engine-${index}`,
    usable: true,
    engine: { id: `engine-${index}`, role: "both", weight: 1 },
    load: { inFlight: 0, yieldingInFlight: 0, pendingPrefillTokens: 0, pendingWorkMs: 0 },
    signals,
  };
}

/** What became of one request, in order. */
interface Sent {
  readonly name: string;
  readonly ticket: AdmissionTicket | undefined;
  /** Index of its target; -1 while it waits or when it was refused. */
  target: number;
  /** Code and Retry-After of its refusal. */
  refusal: string | undefined;
  /** Of the targets that it might have gone to. */
  open: readonly number[];
}

export interface Rig {
  readonly time: VirtualTime;
  readonly targets: TestTarget[];
  readonly admission: Admission<TestTarget>;
  readonly meter: SeriesMeter;
  /** Names of requests in the order in which they went. */
  readonly went: string[];
  /** Sends a request; it goes to the open target with the least waiting. */
  send(name: string, request?: Partial<AdmissionRequest> & Cached, fitsInMemory?: () => boolean): Sent;
  /** Every engine gets so much that nothing more goes there. */
  fill(tokens?: number): void;
  /** Called whenever a request was refused. */
  onRefused: () => void;
  /** Engines are idle again, and the queue is told. */
  unload(): void;
  /** The first token of what went there. */
  done(target: number): void;
}

interface Cached {
  /** Prompt tokens at the engine that has most; unknown if absent. */
  readonly cachedTokens?: number;
}

export interface RigOptions {
  readonly targets?: number;
  readonly settings?: Partial<AdmissionSettings>;
  readonly others?: PeerLoad;
  readonly fleet?: FleetUsage;
  readonly time?: VirtualTime;
  readonly holdMs?: number;
}

/** More than the saturation limit of any class by default. */
export const full = 1_000_000;

export function createRig({
  targets: count = 2,
  settings = {},
  others = noPeerLoad,
  fleet = noFleetUsage,
  time = createVirtualTime(),
  holdMs = 0,
}: RigOptions = {}): Rig {
  const meter = createSeriesMeter();
  const admission = createAdmission<TestTarget>({
    settings: { ...defaultAdmissionSettings, ...settings },
    ...{ clock: time.clock, scheduler: time.scheduler, others, fleet },
    meters: createAdmissionMeters(meter),
    holdMs: () => holdMs,
  });
  const targets = Array.from({ length: count }, (_, index) => testTarget(index));
  const went: string[] = [];
  const rig: Rig = {
    ...{ time, targets, admission, meter, went },
    onRefused: () => {},
    send(name, { cachedTokens, ...request } = {}, fitsInMemory) {
      const whole = { ...plain, ...request };
      const sent = { name, target: -1, refusal: undefined as string | undefined, open: [] as readonly number[] };
      const ticket = admission.enter(whole, {
        targets: () => targets,
        ...(fitsInMemory && { fitsInMemory }),
        uncachedTokens: () => (cachedTokens === undefined ? undefined : whole.promptTokens - cachedTokens),
        admitted(open, admitted) {
          went.push(name);
          const target = leastPending(open.filter(({ usable }) => usable)) ?? open[0];
          sent.open = open.map(({ index }) => index);
          if (!target) return;
          sent.target = target.index;
          target.load.inFlight += 1;
          if (admitted.yields) target.load.yieldingInFlight += 1;
          target.load.pendingPrefillTokens += whole.promptTokens;
          admitted.dispatched(whole.promptTokens);
        },
        refused: ({ code, retryAfterSeconds }) => {
          sent.refusal = `${code} ${retryAfterSeconds}`;
          rig.onRefused();
        },
      });
      return Object.assign(sent, { ticket });
    },
    fill(tokens = full) {
      for (const { load } of targets) load.pendingPrefillTokens = tokens;
    },
    unload() {
      for (const { load } of targets) load.pendingPrefillTokens = 0;
      admission.capacityFreed();
    },
    done(target) {
      targets[target]!.load.pendingPrefillTokens = 0;
      admission.capacityFreed();
    },
  };
  return rig;
}

const plain: AdmissionRequest = {
  className: undefined,
  tenant: "",
  promptTokens: 1_000,
  expectedOutputTokens: 0,
  sizeBytes: 100,
  deadlineMs: undefined,
  onlyEngine: undefined,
};

function leastPending(open: readonly TestTarget[]): TestTarget | undefined {
  return open.reduce<TestTarget | undefined>(
    (least, one) => (least && least.load.pendingPrefillTokens <= one.load.pendingPrefillTokens ? least : one),
    undefined,
  );
}

/** A class for tests: everything at once, one request at a time. */
export function testClass(name: string, changes: Partial<ClassSettings> = {}): ClassSettings {
  return {
    ...{ name, order: "fcfs", share: 0, targetMs: undefined, onMiss: "reject", maxPendingTokens: 1, yields: false },
    maxColdWaitMs: 0,
    ...changes,
  };
}
