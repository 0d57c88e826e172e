import { createSeededRandom, silentLogger, silentMeter } from "@espalier/core";
import { createMesh } from "@espalier/mesh";
import { createMemoryNetwork, createVirtualTime } from "@espalier/testing";
import { clusterOptions, type Environment } from "./environment.ts";

/** An address for every name of one letter, so that no resolver is asked. */
function addressOf(name: string): string {
  return `127.0.0.${name.charCodeAt(0) - 96}:7000`;
}

/** Meshes over a network in memory, in virtual time. */
export function createMemoryEnvironment(seed: number): Environment {
  const { clock, scheduler, advance } = createVirtualTime();
  const network = createMemoryNetwork({ clock, scheduler, random: createSeededRandom(seed) });
  network.setSpeed({ delayMs: 1, jitterMs: 4 });
  const names = new Set<string>();
  const others = (name: string): string[] => [...names].filter((other) => other !== name).map(addressOf);
  return {
    clock,
    scheduler,
    timeoutFactor: 1,
    createBackend({ name, replica, random }) {
      names.add(name);
      const transport = network.transport(addressOf(name));
      const ports = { clock, scheduler, random, logger: silentLogger, meter: silentMeter };
      return createMesh({ ...clusterOptions, ...ports, replica, transport, seeds: [addressOf("a"), addressOf("b")] });
    },
    async pass(durationMs) {
      advance(durationMs);
    },
    isolate: (name) => network.partition([[addressOf(name)], others(name)]),
    reset(name) {
      for (const other of others(name)) network.reset(addressOf(name), other);
    },
    heal: () => network.heal(),
    kill: (name) => network.kill(addressOf(name)),
    async stop() {},
  };
}
