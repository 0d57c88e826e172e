import { fileURLToPath } from "node:url";
import { type Child, startChild } from "@espalier/router";

/** Addresses of the engine, as many engines to a router. */
const engineAddresses = 4;

/** Starts the benches' engine as a child process. */
export function startEngine(): Promise<Child<{ readonly urls: readonly string[] }>> {
  return startChild({
    name: "the engine",
    program: fileURLToPath(new URL("../programs/engine.js", import.meta.url)),
    arguments: [String(engineAddresses)],
  });
}
