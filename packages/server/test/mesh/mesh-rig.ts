import { asRouterId, createSeededRandom, silentLogger, silentMeter } from "@espalier/core";
import { createPrefixIndex, type PrefixIndex } from "@espalier/prefix-index";
import { maxKnownTargets } from "@espalier/routing";
import { createReplica, createTargetSlots, type Replica, type TargetSlots } from "@espalier/shared-tree";
import type { VirtualTime } from "@espalier/testing";
import { type CompiledConfig, loadConfig } from "../../src/config/index.ts";
import { createMeshParts, type MeshParts } from "../../src/mesh/mesh-parts.ts";

const random = createSeededRandom(1);

/** A configuration with this section `mesh`. */
export function configOf(mesh: Readonly<Record<string, unknown>>, more: object = {}): CompiledConfig {
  return loadConfig({ file: { path: "espalier.yaml", text: JSON.stringify({ mesh, ...more }) } });
}

export const noRelease = { version: "", settings: new Map<string, string>() };

export interface ReplicaRig {
  readonly replica: Replica;
  readonly index: PrefixIndex;
  readonly slots: TargetSlots;
}

/** One router's replica that nobody else is told of. */
export function createLoneReplica(time: Pick<VirtualTime, "clock" | "scheduler">, router = "r1"): ReplicaRig {
  const { clock, scheduler } = time;
  const index = createPrefixIndex({ maxTargets: maxKnownTargets, maxBlocks: 10_000, maxSets: 100 });
  const slots = createTargetSlots(maxKnownTargets);
  const ports = { clock, scheduler, logger: silentLogger, meter: silentMeter };
  const replica = createReplica({ ...ports, router: asRouterId(router), index, slots, placementTtlMs: 600_000 });
  return { replica, index, slots };
}

/** The parts of a router that shares, and the index that it fills. */
export function startMeshParts(
  config: CompiledConfig,
  { clock, scheduler }: Pick<VirtualTime, "clock" | "scheduler">,
): { readonly parts: MeshParts; readonly index: PrefixIndex } {
  const index = createPrefixIndex({ maxTargets: maxKnownTargets, maxBlocks: 10_000, maxSets: 100 });
  const ports = { clock, scheduler, random, logger: silentLogger, meter: silentMeter };
  const parts = createMeshParts({ config, index, release: noRelease, ...ports });
  if (!parts) throw new Error("nothing is shared");
  return { parts, index };
}

/** A chain of so many blocks that no other seed has. */
export function chainOf(seed: number, blocks: number): Uint32Array {
  return Uint32Array.from({ length: 2 * blocks }, (_, at) => Math.imul(seed * 65_537 + at + 1, 0x9e37_79b1));
}
