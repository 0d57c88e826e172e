import { fileURLToPath } from "node:url";
import { type Child, startChild } from "espalier-router";
import type {
  MeshNodeAnswers,
  MeshNodeCommand,
  MeshNodeListening,
  MeshNodeOptions,
  MeshNodeReply,
} from "./mesh-node-messages.ts";

/** A node of a measured mesh in its own process. */
export interface MeshNodeProcess {
  readonly routerId: string;
  /** Where other nodes reach it, `host:port`. */
  readonly address: string;
  readonly process: Child<MeshNodeListening>["process"];
  /**
   * Sends the node a request.
   *
   * @throws Error when the node fails to execute it, or is gone
   */
  ask<Command extends MeshNodeCommand>(command: Command): Promise<MeshNodeAnswers[Command]>;
  /** Kills it. */
  stop(): Promise<void>;
}

/** Nodes start one after the other beside those that run, on cores that are busy with them: a busy machine is no failure. */
const startTimeoutMs = 60_000;
const nodeProgram = fileURLToPath(new URL("../programs/mesh-node.ts", import.meta.url));

/**
 * @param program another program of the same commands, for tests
 * @throws Error when the program cannot be started
 */
export async function startMeshNodeProcess(
  options: MeshNodeOptions,
  program: string = nodeProgram,
): Promise<MeshNodeProcess> {
  const child = await startChild<MeshNodeListening>({
    name: `node ${options.routerId}`,
    ...{ program, arguments: [JSON.stringify(options)], startTimeoutMs },
  });
  const waiting = new Map<number, { resolve: (answer: never) => void; reject: (error: Error) => void }>();
  let requests = 0;
  child.process.on("message", (message: MeshNodeReply) => {
    const asked = waiting.get(message.id);
    waiting.delete(message.id);
    if (message.type === "answer") asked?.resolve(message.answer as never);
    else if (message.type === "failed") asked?.reject(new Error(`${options.routerId}: ${message.message}`));
  });
  void child.exited.then(() => {
    for (const { reject } of waiting.values()) reject(new Error(`${options.routerId} is gone`));
    waiting.clear();
  });
  return {
    routerId: options.routerId,
    address: child.listening.address,
    process: child.process,
    ask: (type) =>
      new Promise((resolve, reject) => {
        if (!child.process.connected) {
          reject(new Error(`${options.routerId} is gone`));
          return;
        }
        const id = requests++;
        waiting.set(id, { resolve, reject });
        child.process.send({ id, type });
      }),
    stop: () => child.stop(),
  };
}
