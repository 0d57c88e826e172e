import type { AdmissionSettings, EngineOrder } from "@espalier/admission";
import {
  type Clock,
  createSeededRandom,
  type EngineRole,
  type Logger,
  type Meter,
  type Random,
} from "@espalier/common";
import { createPolicy } from "@espalier/policies";
import type { ReplicaPorts } from "@espalier/replication";
import type { MemoryNetwork } from "@espalier/testing";
import type { DelayedTier } from "../delayed/delayed-tier.ts";
import type { SimTiming } from "../run/run-options.ts";
import { scrapeMsOf } from "../run/timing.ts";
import { createEngineReading } from "./engine-reading.ts";
import type { EventFaults } from "./event-faults.ts";
import { RealView } from "./real-view.ts";
import type { RouterSeat } from "./router-seat.ts";
import type { RouterView } from "./router-view.ts";
import type { SimEngine } from "./sim-engine.ts";
import { SimRouter } from "./sim-router.ts";
import type { SplitSettings } from "./sim-split.ts";
import { createReadings, SimTarget } from "./sim-target.ts";

export interface RouterFactoryOptions {
  readonly policy: string;
  readonly policyOptions: Readonly<Record<string, number | string>>;
  /** How requests wait while engines are busy; they go at once when undefined. */
  readonly admission: AdmissionSettings | undefined;
  /** In which order engines are told to take what waits in them. */
  readonly engineOrder: EngineOrder;
  /** How two engines serve a request together; one always does when undefined. */
  readonly split: SplitSettings | undefined;
  readonly engines: readonly SimEngine[];
  /** Of the engines by their number; `both` for those beyond. */
  readonly roles: readonly EngineRole[];
  readonly events: EventFaults;
  readonly timing: SimTiming;
  readonly seed: number;
  /** Virtual time, whatever a router's own clock shows. */
  readonly trueClock: Clock;
  /** Undefined where routers have links of their own. */
  readonly delayed: DelayedTier | undefined;
  readonly network: MemoryNetwork;
  /** Addresses of routers to find the others by. */
  readonly seeds: readonly string[];
  readonly wrapPorts: ((ports: ReplicaPorts, router: number) => ReplicaPorts) | undefined;
  readonly observe: ((router: number) => { readonly logger: Logger; readonly meter: Meter }) | undefined;
}

/** Makes the router of a seat's process, which is not started. */
export function createSimRouter(options: RouterFactoryOptions, seat: RouterSeat): SimRouter {
  const { policy, policyOptions, engines, timing, seed, delayed, trueClock } = options;
  const { clock, scheduler } = seat.time;
  const random = createSeededRandom(seed * 65_537 + seat.number * 257 + seat.lives);
  const readings = createReadings(engines.length);
  const onChange = (target: SimTarget): void => view.loadChanged(target);
  const targets = engines.map(
    (model) =>
      new SimTarget({ model, index: model.number, clock, readings, onChange, role: options.roles[model.number] }),
  );
  const view: RouterView = delayed ? delayed.viewOf(seat.number, targets) : realView(options, seat, random);
  const { hopDelayMs } = timing;
  const decides = createPolicy(policy, policyOptions);
  const scrapeMs = scrapeMsOf(timing, decides.name);
  return new SimRouter({
    ...{ view, targets, clock, trueClock, scheduler, random, hopDelayMs, scrapeMs },
    policy: decides,
    admission: options.admission,
    engineOrder: options.engineOrder,
    split: options.split,
  });
}

function realView(options: RouterFactoryOptions, seat: RouterSeat, random: Random): RealView {
  const { engines, events, timing, network, seeds, wrapPorts, observe } = options;
  const { clock, scheduler } = seat.time;
  return new RealView({
    ...{ engines, clock, scheduler, random, ...observe?.(seat.number) },
    router: seat.id,
    transport: network.transport(seat.address),
    seeds: seeds.filter((address) => address !== seat.address),
    readEngine: (engine, output) =>
      createEngineReading({
        ...{ engine, output, scheduler, delayMs: timing.eventDelayMs },
        isLost: ({ sequence }) => events.isLost(engine.number, sequence),
        canReplay: () => events.canReplay(engine.number),
      }),
    ...(wrapPorts && { wrapPorts: (ports) => wrapPorts(ports, seat.number) }),
  });
}
