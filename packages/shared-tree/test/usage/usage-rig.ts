import { asRouterId } from "@espalier/core";
import { type CountingMeter, createCountingMeter, createVirtualTime, type VirtualTime } from "@espalier/testing";
import { type UsageLimits, UsagePlane } from "../../src/usage/usage-plane.ts";

export interface UsageRouter {
  readonly plane: UsagePlane;
  readonly pool: ReturnType<UsagePlane["of"]>;
  readonly meter: CountingMeter;
  /** Every frame to everybody, in order. */
  readonly frames: Uint8Array[];
}

export interface UsageRouterOptions {
  readonly time: VirtualTime;
  readonly epoch?: number;
  readonly limits?: Partial<UsageLimits>;
}

/** A router that has begun to tell others of tenants of the class `default` of one pool. */
export function createUsageRouter(name: string, { time, epoch = 1, limits = {} }: UsageRouterOptions): UsageRouter {
  const meter = createCountingMeter();
  const origin = { router: asRouterId(name), epoch };
  const plane = new UsagePlane({
    ...{ self: () => origin, clock: time.clock, scheduler: time.scheduler, meter, limits },
  });
  const frames: Uint8Array[] = [];
  plane.exchange.onFrame((frame) => frames.push(frame));
  plane.start();
  return { plane, pool: plane.of("model"), meter, frames };
}

/** What a router knows that others have served to a tenant. */
export function tokensElsewhere({ pool }: UsageRouter, tenant: string): number {
  return pool.elsewhere("default", tenant)?.tokens ?? 0;
}

export function hear(router: UsageRouter, frames: readonly Uint8Array[]): void {
  for (const frame of frames) router.plane.exchange.receive(frame);
}

/** Delivers every frame that one router makes to another at once. */
export function connect(from: UsageRouter, to: UsageRouter): void {
  from.plane.exchange.onFrame((frame) => to.plane.exchange.receive(frame));
}

/** Two routers of which the second hears the first. */
export function createPair(limits: Partial<UsageLimits> = {}) {
  const time = createVirtualTime();
  const [from, to] = [createUsageRouter("a", { time, limits }), createUsageRouter("b", { time, limits })];
  connect(from, to);
  return { time, from, to };
}
