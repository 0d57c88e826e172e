// The engine as a process of its own: says where it listens and ends with its parent.
import { systemScheduler } from "@espalier/common";
import { startBenchEngine } from "../support/bench-engine.ts";

const { urls } = await startBenchEngine(Number(process.argv[2] ?? 1), systemScheduler);
process.once("disconnect", () => process.exit());
process.send?.({ type: "listening", urls });
