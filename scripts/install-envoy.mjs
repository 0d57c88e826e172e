// `npm run envoy:install`: the Envoy that tests and `espalier demo --envoy` start, into the folder for caches. Prints its path.
import { setUp } from "./set-up.mjs";

await setUp();
const { installEnvoy } = await import("../apps/router/src/envoy/install-envoy.ts");
try {
  const note = (line) => process.stderr.write(`${line}\n`);
  console.log(await installEnvoy({ cacheFolder: process.env.XDG_CACHE_HOME, note }));
} catch (error) {
  process.stderr.write(`error: ${error.message}\n`);
  process.exitCode = 1;
}
