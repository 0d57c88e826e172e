import { EspalierError } from "@espalier/common";
import { Command, CommanderError } from "commander";
import { registerCheckConfig } from "./commands/check-config.ts";
import { registerDemo } from "./commands/demo.ts";
import { registerExplain } from "./commands/explain.ts";
import { registerFeeds } from "./commands/feeds.ts";
import { registerReplay } from "./commands/replay.ts";
import { registerServe } from "./commands/serve.ts";
import { registerSimulate } from "./commands/simulate.ts";
import { registerStatus } from "./commands/status.ts";
import { registerVerifyTokenizer } from "./commands/verify-tokenizer.ts";
import { readVersion, registerVersion } from "./commands/version.ts";
import { registerWorkers } from "./commands/workers.ts";
import { UsageError } from "./output/usage-error.ts";
import { writeNote } from "./output/write.ts";

const exitFailure = 1;
const exitUsage = 2;
/** Timers of the ports do not keep a process alive; while a command runs, this one does. */
const holdMs = 2 ** 30;

const program = new Command("espalier")
  .description("A router tier for LLM engines: cache-aware, load-aware, with no coordinator.")
  .version(readVersion(), "-V, --version")
  .showSuggestionAfterError()
  .showHelpAfterError("(--help says more)")
  .configureHelp({ showGlobalOptions: false })
  .exitOverride();
program.commandsGroup("Run:");
registerServe(program);
registerDemo(program);
program.commandsGroup("Look:");
registerStatus(program);
registerWorkers(program);
registerFeeds(program);
registerExplain(program);
registerCheckConfig(program);
registerVerifyTokenizer(program);
registerVersion(program);
program.commandsGroup("Measure:");
registerReplay(program);
registerSimulate(program);
program.addHelpCommand(
  new Command("help").argument("[command]").helpGroup("Look:").description("display help for a command"),
);
program.addHelpText("after", "\nExit codes: 0 done, 1 it failed, 2 it was called wrongly.");

// `espalier ... | head` closes the pipe once it has seen enough, which is no failure.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code !== "EPIPE") throw error;
  process.exit();
});
const hold = setInterval(() => {}, holdMs);
try {
  await program.parseAsync();
} catch (error) {
  process.exitCode = report(error);
} finally {
  clearInterval(hold);
}
if (process.connected) process.disconnect();

/** Says what went wrong in one line, and gives the exit code. */
function report(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : exitUsage;
  if (error instanceof UsageError) {
    writeNote(`error: ${error.message}`);
    return exitUsage;
  }
  if (error instanceof EspalierError) {
    writeNote(`error: ${error.message} (${error.code})\n${error.kind.action}`);
    return exitFailure;
  }
  writeNote(`error: ${error instanceof Error ? error.message : String(error)}`);
  return exitFailure;
}
