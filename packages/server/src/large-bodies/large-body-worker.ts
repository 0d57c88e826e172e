import { parentPort } from "node:worker_threads";
import type { BodyTask } from "./large-bodies.ts";
import { createBodyReader } from "./read-large-body.ts";

// The program of the thread that reads large bodies.

const read = createBodyReader();

parentPort?.on("message", async (task: BodyTask & { readonly id: number }) => {
  const { id } = task;
  try {
    parentPort?.postMessage({ id, ...(await read(task)) });
  } catch (error) {
    parentPort?.postMessage({ id, error: error instanceof Error ? error.message : String(error) });
  }
});
