// `npm run test:real-engine`: runs conversations against real vLLM servers on the CPU.
import { setUp } from "./set-up.mjs";

await setUp();
process.env.ESPALIER_SKIP_BUILD = "1";
await import("../bench/src/real-engine/main.ts");
