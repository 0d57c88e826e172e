import { silentLogger, silentMeter, systemClock, systemScheduler } from "@espalier/core";
import { createMesh, createWsTransport, type Mesh } from "@espalier/mesh";
import { clusterOptions, type Environment } from "./environment.ts";
import { createFaultyTransport, type FaultyTransport } from "./faulty-transport.ts";
import { passRealTime, realTimeFactor } from "./pass-real-time.ts";

/** Meshes over sockets of this machine, in real time. A router's first address is its address in all its epochs. */
export function createSocketEnvironment(): Environment {
  const meshes = new Map<string, Mesh>();
  const transports = new Map<string, FaultyTransport>();
  const ports = { clock: systemClock, scheduler: systemScheduler, logger: silentLogger, meter: silentMeter };
  return {
    clock: systemClock,
    scheduler: systemScheduler,
    timeoutFactor: realTimeFactor,
    createBackend({ name, replica, random }) {
      const transport = createFaultyTransport(
        createWsTransport({ host: "127.0.0.1", port: 0, scheduler: systemScheduler }),
      );
      const seeds = [...meshes.values()].map(({ address }) => address).filter((address) => address !== "");
      const mesh = createMesh({ ...clusterOptions, ...ports, random, replica, transport, seeds, graceMs: 1_000 });
      meshes.set(name, mesh);
      transports.set(name, transport);
      return mesh;
    },
    pass: passRealTime,
    isolate: (name) => transports.get(name)?.setIsolated(true),
    reset: (name) => transports.get(name)?.reset(),
    heal() {
      for (const transport of transports.values()) transport.setIsolated(false);
    },
    kill(name) {
      transports.get(name)?.setIsolated(true);
      meshes.delete(name);
    },
    async stop() {},
  };
}
