// Runs the bare proxy as a process, for the engines in its arguments. It ends with its parent.
import { startBareProxy } from "../bare-proxy.ts";

const { url } = await startBareProxy(process.argv.slice(2));
process.once("disconnect", () => process.exit());
process.send?.({ type: "listening", url });
