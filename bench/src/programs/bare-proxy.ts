// The bare proxy as a process of its own, over the engines that its arguments name; it ends with its parent.
import { startBareProxy } from "../bare-proxy.ts";

const { url } = await startBareProxy(process.argv.slice(2));
process.once("disconnect", () => process.exit());
process.send?.({ type: "listening", url });
