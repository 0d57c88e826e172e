import { type Random, silentLogger, silentMeter } from "@espalier/core";
import { createMesh } from "@espalier/mesh";
import { createVirtualTime } from "@espalier/testing";
import { clusterOptions, type Environment } from "./environment.ts";
import { createScheduledNetwork, type ScheduledNetwork } from "./scheduled-network.ts";

export interface ScheduledEnvironment extends Environment {
  readonly network: ScheduledNetwork;
  /** Moves time without letting anything arrive. */
  advance(durationMs: number): void;
}

/** Deliveries in one millisecond before something must be sending without end. */
const maxDeliveriesPerMs = 100_000;

function addressOf(name: string): string {
  return `127.0.0.${name.charCodeAt(0) - 96}:7000`;
}

/** Meshes in virtual time over a network whose every delivery is picked. */
export function createScheduledEnvironment(random: Random): ScheduledEnvironment {
  const { clock, scheduler, advance } = createVirtualTime();
  const network = createScheduledNetwork(random);
  return {
    clock,
    scheduler,
    timeoutFactor: 1,
    network,
    advance,
    createBackend({ name, replica, random: own }) {
      const transport = network.transport(addressOf(name));
      const ports = { clock, scheduler, random: own, logger: silentLogger, meter: silentMeter };
      return createMesh({ ...clusterOptions, ...ports, replica, transport, seeds: [addressOf("a"), addressOf("b")] });
    },
    async pass(durationMs) {
      for (let left = durationMs; left > 0; left--) {
        advance(Math.min(1, left));
        let deliveries = 0;
        while (network.deliver()) if (++deliveries > maxDeliveriesPerMs) throw new Error("sending has no end");
      }
    },
    isolate: (name) => network.isolate(addressOf(name)),
    reset: (name) => network.reset(addressOf(name)),
    heal: () => network.heal(),
    kill: (name) => network.kill(addressOf(name)),
    async stop() {},
  };
}
