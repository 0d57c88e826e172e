import type { MeshNode } from "./mesh-node.ts";
import { type MeshNodeReply, type MeshNodeRequest, meshNodeCommands } from "./mesh-node-messages.ts";

/** Executes a request to a node. The reply contains any failure. */
export async function answerRequest(
  { commands }: Pick<MeshNode, "commands">,
  { id, type }: MeshNodeRequest,
): Promise<MeshNodeReply> {
  if (!meshNodeCommands.includes(type)) {
    return { id, type: "failed", message: `unknown command ${JSON.stringify(type)}` };
  }
  try {
    return { id, type: "answer", answer: await commands[type]() };
  } catch (error) {
    return { id, type: "failed", message: error instanceof Error ? error.message : String(error) };
  }
}
