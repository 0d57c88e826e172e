import { asRouterId, type RouterId } from "@espalier/core";
import { type CountingMeter, createCountingMeter, createVirtualTime, type VirtualTime } from "@espalier/testing";
import { createTargetSlots, type TargetSlots } from "../../src/facts/target-slots.ts";
import type { LoadGauge } from "../../src/load/load-gauge.ts";
import { type LoadLimits, LoadPlane } from "../../src/load/load-plane.ts";

export interface LoadRouter {
  readonly plane: LoadPlane;
  readonly slots: TargetSlots;
  readonly meter: CountingMeter;
  /** Every frame to everybody, in order. */
  readonly frames: Uint8Array[];
  epoch: number;
}

export interface RouterOptions {
  readonly time?: VirtualTime;
  readonly epoch?: number;
  readonly capacity?: number;
  /** Targets that it has from the start. Default: those that most of these tests speak of. */
  readonly fleet?: readonly string[];
  readonly limits?: Partial<LoadLimits>;
}

export const routerId = (name: string): RouterId => asRouterId(name);

export function createLoadRouter(name: string, options: RouterOptions = {}): LoadRouter {
  const time = options.time ?? createVirtualTime();
  const slots = createTargetSlots(options.capacity ?? 64);
  for (const key of options.fleet ?? fleetOf(slots.capacity)) slots.slotOf(key);
  const meter = createCountingMeter();
  const frames: Uint8Array[] = [];
  const state = { epoch: options.epoch ?? 1 };
  const plane = new LoadPlane({
    self: () => ({ router: routerId(name), epoch: state.epoch }),
    slots,
    clock: time.clock,
    scheduler: time.scheduler,
    meter,
    limits: options.limits ?? {},
  });
  plane.exchange.onFrame((frame) => frames.push(frame));
  return {
    plane,
    slots,
    meter,
    frames,
    get epoch() {
      return state.epoch;
    },
    set epoch(epoch) {
      state.epoch = epoch;
    },
  };
}

/** Targets that every router of these tests has, as many as have numbers. */
function fleetOf(capacity: number): string[] {
  const first = ["e/0", "e/1", "e/2", "e/3", "t", "t0", "t1", "t2", "x"];
  const others = Array.from({ length: capacity }, (_, at) => `e/${at + 4}`);
  return [...first, ...others].slice(0, capacity);
}

export function gaugeOf(inFlight: number): LoadGauge {
  return {
    inFlight,
    pendingPrefillTokens: inFlight * 10,
    decodeTokens: inFlight * 100,
    pendingWorkMs: inFlight * 7,
    activeTokens: inFlight * 30,
    lendingTokens: 0,
    yieldingInFlight: 0,
    answers: 0,
  };
}

/** What the sums of a router say of a target. */
export function sumsOf({ plane, slots }: LoadRouter, target: string): LoadGauge {
  const slot = slots.find(target);
  const { shared } = plane;
  return {
    inFlight: shared.inFlight[slot] ?? 0,
    pendingPrefillTokens: shared.pendingPrefillTokens[slot] ?? 0,
    decodeTokens: shared.decodeTokens[slot] ?? 0,
    pendingWorkMs: shared.pendingWorkMs[slot] ?? 0,
    activeTokens: shared.activeTokens[slot] ?? 0,
    lendingTokens: shared.lendingTokens[slot] ?? 0,
    yieldingInFlight: shared.yieldingInFlight[slot] ?? 0,
    answers: shared.answers[slot] ?? 0,
  };
}

/** Delivers every frame that one router makes to another at once. */
export function connect(from: LoadRouter, to: LoadRouter): () => void {
  return from.plane.exchange.onFrame((frame) => to.plane.exchange.receive(frame));
}
