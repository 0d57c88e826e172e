// Runs one router of a measured mesh as a process. Its argument is a `MeshNodeOptions` in JSON. It reports where it
// listens, answers `MeshNodeRequest`s, and ends with its parent.
import { silentLogger, systemClock, systemScheduler } from "@espalier/core";
import { createWsTransport } from "@espalier/mesh";
import { answerRequest } from "../mesh-node/answer-request.ts";
import { startMeshNode } from "../mesh-node/mesh-node.ts";
import type { MeshNodeOptions, MeshNodeRequest } from "../mesh-node/mesh-node-messages.ts";

const node = await startMeshNode(JSON.parse(process.argv[2] ?? "") as MeshNodeOptions, {
  transport: createWsTransport({ host: "127.0.0.1", port: 0, scheduler: systemScheduler }),
  clock: systemClock,
  scheduler: systemScheduler,
  logger: silentLogger,
});
process.once("disconnect", () => process.exit());
process.on("message", (request: MeshNodeRequest) => {
  void answerRequest(node, request).then((reply) => {
    process.send?.(reply);
    if (request.type === "leave") process.disconnect?.();
  });
});
process.send?.({ type: "listening", address: node.address });
