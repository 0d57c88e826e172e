// `npm run test:real-engine`: builds what is missing, then runs conversations against real vLLM servers on the CPU.
import { ensureBuilt } from "./ensure-built.mjs";

ensureBuilt();
process.env.ESPALIER_SKIP_BUILD = "1";
await import("../bench/dist/real-engine/main.js");
