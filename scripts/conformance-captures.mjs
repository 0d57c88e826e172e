// `npm run conformance:captures -- --dir DIR`: runs recorded engine traffic through the code.
import { setUp } from "./set-up.mjs";

await setUp();
await import("../bench/src/captures/main.ts");
