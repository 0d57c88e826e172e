import { asRouterId, createSeededRandom, silentLogger, silentMeter } from "@espalier/core";
import { createMesh } from "@espalier/mesh";
import { createPrefixIndex } from "@espalier/prefix-index";
import { createSharedTier, createTargetIndices, createTargetSlots, type SharedTier } from "@espalier/shared-tree";
import { createMemoryNetwork, createVirtualTime } from "@espalier/testing";
import { onTestFinished } from "vitest";
import { createLoadPublisher, type LoadPublisher } from "../src/load-publisher.ts";

export interface PairedRouter {
  readonly tier: SharedTier;
  readonly publisher: LoadPublisher;
  indexOf(target: string): ReturnType<ReturnType<typeof createTargetIndices>>;
}

/** Two routers that share their load over a network in memory, in virtual time; both are started. */
export async function startPair() {
  const time = createVirtualTime();
  const random = createSeededRandom(1);
  const network = createMemoryNetwork({ ...time, random });
  network.setSpeed({ delayMs: 1 });
  const addresses = ["127.0.0.1:7000", "127.0.0.2:7000"];
  const routers = await Promise.all(
    addresses.map(async (address, at): Promise<PairedRouter> => {
      const slots = createTargetSlots(16);
      const ports = { ...time, logger: silentLogger, meter: silentMeter };
      const tier = createSharedTier({
        ...{ ...ports, router: asRouterId(`r${at}`), slots, placementTtlMs: 600_000 },
        index: createPrefixIndex({ maxTargets: 16, maxBlocks: 10_000, maxSets: 1_000 }),
        createBackend: (replica) =>
          createMesh({
            ...{ ...ports, replica: replica.ports, random, transport: network.transport(address), seeds: addresses },
            security: { kind: "secret", secrets: ["a secret of the test"] },
            ...{ cluster: "test", fleetSeed: "seed", blockSizeTokens: 16 },
          }),
      });
      const publisher = createLoadPublisher(tier.replica.load, time.scheduler);
      await tier.start();
      await publisher.start();
      onTestFinished(async () => {
        await publisher.stop();
        await tier.stop();
      });
      return { tier, publisher, indexOf: createTargetIndices(slots) };
    }),
  );
  return { time, network, addresses, one: routers[0]!, other: routers[1]!, until: time.until };
}
