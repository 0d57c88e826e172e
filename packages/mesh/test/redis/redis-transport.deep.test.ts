import { createSeededRandom, silentLogger, silentMeter, systemScheduler, type Transport } from "@espalier/core";
import { hasRedisServer } from "@espalier/testing";
import { afterAll, beforeAll, describe } from "vitest";
import { createIncidentCounter, createRedisKeys, defaultRedisLimits } from "../../src/redis/redis-keys.ts";
import { RedisConnector } from "../../src/redis/redis-session.ts";
import { RedisTransport } from "../../src/redis/redis-transport.ts";
import { describeTransport, suiteFrameBytes } from "../transport/transport-suite.ts";
import { type CommandedRedis, startRedis } from "./redis-server.ts";

describe.skipIf(!hasRedisServer("connections through Redis"))("Redis", () => {
  let server: CommandedRedis;
  let made = 0;
  beforeAll(async () => {
    server = await startRedis();
  });
  afterAll(() => server.close());

  function make(): Transport {
    const keys = createRedisKeys("suite");
    const limits = { ...defaultRedisLimits, maxFrameBytes: suiteFrameBytes };
    const address = `${(++made).toString(16).padStart(16, "0")}.redis:1`;
    const count = createIncidentCounter(silentMeter);
    const transport = new RedisTransport({
      address,
      keys,
      limits,
      scheduler: systemScheduler,
      count,
      isGone: () => true,
    });
    const connector = new RedisConnector({
      ...{ url: server.url, limits, scheduler: systemScheduler, logger: silentLogger },
      random: createSeededRandom(made),
      channels: [keys.inbox(address)],
      onMessage: (message) => transport.receive(message),
      onSession: (session) => transport.attach(session),
      onEnd: () => transport.detach(),
    });
    return {
      get address() {
        return transport.address;
      },
      onConnection: (accept) => transport.onConnection(accept),
      dial: (to, observer) => transport.dial(to, observer),
      async start() {
        await connector.start();
        await transport.start();
      },
      async stop() {
        await transport.stop();
        connector.stop();
      },
    };
  }

  describeTransport("Redis", () => ({ make, deadAddress: async () => "00000000000000ff.redis:1" }));
});
