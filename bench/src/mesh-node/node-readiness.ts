import type { Cancel, Clock, Scheduler } from "@espalier/core";
import type { Backend } from "@espalier/mesh";
import type { PrefixIndex } from "@espalier/prefix-index";
import type { MeshNodeReadiness } from "./mesh-node-messages.ts";

/** Records when a node has everything its peers have. */
export interface NodeReadiness {
  /** Must be called just before the mesh starts. */
  start(): void;
  stop(): void;
  state(): MeshNodeReadiness;
}

const periodMs = 1;

export function createNodeReadiness(parts: {
  readonly mesh: Pick<Backend, "waitingFor" | "members">;
  readonly index: PrefixIndex;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}): NodeReadiness {
  const { mesh, index, clock, scheduler } = parts;
  let readyMs: number | null = null;
  let readyBlocks: number | null = null;
  let cancel: Cancel = () => {};
  return {
    start() {
      const startMs = clock.nowMs();
      cancel = scheduler.every(periodMs, () => {
        if (mesh.waitingFor.length > 0) return;
        readyMs = clock.nowMs() - startMs;
        readyBlocks = index.factCount;
        cancel();
      });
    },
    stop: () => cancel(),
    state: () => ({
      waitingFor: mesh.waitingFor,
      readyMs,
      readyBlocks,
      members: mesh.members().filter(({ state }) => state === "alive").length,
      blocks: index.factCount,
    }),
  };
}
