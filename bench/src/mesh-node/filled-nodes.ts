import { untilNothingMissing, type WaitPorts } from "../support/until.ts";
import type { MeshNodeCommand, MeshNodeOptions } from "./mesh-node-messages.ts";
import type { MeshNodeProcess } from "./mesh-node-process.ts";

type Node = Pick<MeshNodeProcess, "address" | "ask" | "stop">;

export interface NodePorts<Started extends Node> extends WaitPorts {
  readonly startNode: (options: MeshNodeOptions) => Promise<Started>;
}

/** How long an unmeasured step may take. */
const timeoutMs = 120_000;

/**
 * Starts nodes one after the other, fills them, and waits until each has the blocks of all. They end with `use`.
 *
 * @throws Error when they do not find each other
 */
export async function withFilledNodes<Started extends Node, Result>(
  plans: readonly Omit<MeshNodeOptions, "seeds">[],
  ports: NodePorts<Started>,
  use: (nodes: readonly Started[], blocks: number) => Promise<Result>,
): Promise<Result> {
  const nodes: Started[] = [];
  try {
    for (const plan of plans) nodes.push(await ports.startNode({ ...plan, seeds: addressesOf(nodes.slice(0, 2)) }));
    await untilReady(nodes, ports, "the nodes to find each other", ({ members, waitingFor }) => {
      return members === plans.length - 1 && waitingFor.length === 0;
    });
    const filled = await askAll(nodes, "fill");
    const blocks = filled.reduce((sum, each) => sum + each.blocks, 0);
    await untilReady(nodes, ports, "the nodes to share what they hold", (ready) => ready.blocks === blocks);
    return await use(nodes, blocks);
  } finally {
    await Promise.all(nodes.map((node) => node.stop()));
  }
}

export const addressesOf = (nodes: readonly Node[]): string[] => nodes.map(({ address }) => address);

export async function askAll<Command extends MeshNodeCommand>(nodes: readonly Node[], command: Command) {
  return Promise.all(nodes.map((node) => node.ask(command)));
}

/** @throws Error when it takes too long */
export function untilReady(
  nodes: readonly Node[],
  ports: WaitPorts,
  what: string,
  isThere: (ready: Awaited<ReturnType<typeof askAll<"ready">>>[number]) => boolean,
): Promise<void> {
  const missing = async (): Promise<string | undefined> =>
    (await askAll(nodes, "ready")).every(isThere) ? undefined : `still waiting for ${what}`;
  return untilNothingMissing(missing, timeoutMs, ports);
}
