import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { bundleProgram } from "../../../scripts/bundle-program.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));

bundleProgram(root, { main: join(root, "src", "main.ts") });
