// A router inside another program: node examples/embedding/router.mjs http://127.0.0.1:8000 [more engines]
import { silentLogger } from "@espalier/core";
import { createRouter, loadConfig } from "@espalier/server";

const config = loadConfig({
  flags: { "--engine": process.argv.slice(2), "--listen-port": "0", "--admin-port": "0" },
});
const router = createRouter({ config, logger: silentLogger });
await router.start();
console.log(`clients: ${router.url}  operators: ${router.adminUrl}`);

// Ctrl-C or SIGTERM: open answers may finish, for ten seconds at most.
const stop = async () => {
  await router.drain.run({ delayMs: 0, graceMs: 10_000 });
  await router.stop();
};
process.once("SIGINT", stop);
process.once("SIGTERM", stop);
