import { silentLogger, silentMeter, systemClock, systemScheduler } from "@espalier/core";
import { createRedisBackend } from "@espalier/mesh";
import { type RedisServer, startRedisServer } from "@espalier/testing";
import type { Environment } from "./environment.ts";
import { passRealTime, realTimeFactor } from "./pass-real-time.ts";
import { startTcpRelay, type TcpRelay } from "./tcp-relay.ts";

export interface RedisEnvironment extends Environment {
  readonly server: RedisServer;
}

/** Routers that share a Redis server, each by way of a relay of its own that can be cut. */
export async function createRedisEnvironment(names: readonly string[]): Promise<RedisEnvironment> {
  const server = await startRedisServer();
  const relays = new Map<string, TcpRelay>();
  for (const name of names) relays.set(name, await startTcpRelay(server.port));
  const relayOf = (name: string): TcpRelay => {
    const relay = relays.get(name);
    if (!relay) throw new RangeError(`no relay for ${name}`);
    return relay;
  };
  const ports = { clock: systemClock, scheduler: systemScheduler, logger: silentLogger, meter: silentMeter };
  return {
    server,
    clock: systemClock,
    scheduler: systemScheduler,
    timeoutFactor: realTimeFactor,
    createBackend({ name, replica, random }) {
      relayOf(name).setCut(false);
      const url = `redis://127.0.0.1:${relayOf(name).port}`;
      return createRedisBackend({
        ...ports,
        random,
        replica,
        url,
        cluster: "convergence",
        fleetSeed: "test",
        blockSizeTokens: 16,
      });
    },
    pass: passRealTime,
    isolate: (name) => relayOf(name).setCut(true),
    reset: (name) => relayOf(name).reset(),
    heal() {
      for (const relay of relays.values()) relay.setCut(false);
    },
    kill: (name) => relayOf(name).setCut(true),
    async stop() {
      for (const relay of relays.values()) await relay.close();
      await server.close();
    },
  };
}
