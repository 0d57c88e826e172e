// Runs cheap engines as a process. Its argument is a `LimitEnginesOptions` in JSON. It reports where they listen, and ends
// with its parent.
import { type LimitEnginesCommand, type LimitEnginesOptions, startLimitEngines } from "../limits/limit-engines.ts";

const engines = await startLimitEngines(JSON.parse(process.argv[2] ?? "") as LimitEnginesOptions);
process.once("disconnect", () => process.exit());
process.on("message", ({ type }: LimitEnginesCommand) => {
  if (type === "publish") engines.publish();
});
process.send?.({ type: "listening", ...engines.listening });
