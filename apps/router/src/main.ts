import { readFileSync } from "node:fs";
import { EspalierError, layOutHelpItem, renamedTo, wrapText } from "@espalier/core";
import { Command, CommanderError, type HelpConfiguration } from "commander";
import { readName, UsageError } from "./cli/read-flags.ts";
import { addCommand, commandNames } from "./commands/command-list.ts";
import { calledCommand, loadCalledCommand } from "./commands/command-loaders.ts";
import { readVersion } from "./commands/version.ts";
import { checkOpenFiles, openFileLimit } from "./open-files.ts";
import { writeNote } from "./output.ts";

const exitFailure = 1;
const exitUsage = 2;
const usualColumns = 80;
/** Indent of a heading's second line. */
const headingIndent = 2;
/** Timers of the ports do not keep a process alive; this one does while a command runs. */
const holdMs = 2 ** 30;

/** Checked before modules are loaded, because loading opens many files. */
const routerCommands: ReadonlySet<string> = new Set(["serve", "demo"]);

const helpLayout: HelpConfiguration = {
  showGlobalOptions: false,
  styleTitle: (title) => wrapText(title, headingIndent, usualColumns),
  formatItem(term, termWidth, description, helper) {
    return layOutHelpItem(term, termWidth, description, helper.helpWidth ?? usualColumns);
  },
};

const program = new Command("espalier")
  .description("A router tier for LLM engines: cache-aware, load-aware, with no coordinator.")
  .version(readVersion(), "-V, --version")
  .showSuggestionAfterError()
  .showHelpAfterError("(run with --help for usage)")
  .configureHelp(helpLayout)
  .exitOverride();
// The charts of llm-d and KServe start a picker by flags alone.
if (process.argv[2]?.startsWith("--pool-name")) await readPickerFlags();
if (routerCommands.has(calledCommand(process.argv.slice(2)) ?? "")) endWithout(() => checkOpenFiles(openFileLimit()));
endWithout(() => {
  const [first, second] = process.argv.slice(2);
  if (first === "help" && second !== undefined) readName(second, "help", [...commandNames, "help"]);
  else if (first !== undefined && renamedTo(first, commandNames)) readName(first, "espalier", commandNames);
});
const called = await loadCalledCommand(process.argv.slice(2));
for (const name of commandNames) {
  if (name === called?.name) called.register(program);
  else addCommand(program, name);
}
// Only the called command's options and arguments are known.
program.configureHelp({ ...helpLayout, subcommandTerm: (command) => command.name() });
program.addHelpCommand(
  new Command("help").argument("[command]").helpGroup("Look:").description("display help for a command"),
);
program.addHelpText(
  "after",
  "\nExit codes: 0 success, 1 failure, 2 usage error, 130 or 143 killed by a second signal.",
);

// `espalier ... | head` closes the pipe after enough output, which is no failure.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE") process.exit();
  writeNote(`error: standard output cannot be written: ${error.message}`);
  process.exit(exitFailure);
});
// Whatever a command does, it does it also where nobody can be told: the pipe is closed, or the disk of the log full.
process.stderr.on("error", () => {});
const hold = setInterval(() => {}, holdMs);
try {
  await program.parseAsync();
} catch (error) {
  process.exitCode = report(error);
} finally {
  clearInterval(hold);
}
if (process.connected) process.disconnect();

async function readPickerFlags(): Promise<void> {
  const { readPickerCommand } = await import("./migrate/llm-d/picker-flags.ts");
  endWithout(() => {
    const [node = "", file = "", ...written] = process.argv;
    const command = readPickerCommand(written, process.env, (path) => readFileSync(path, "utf8"));
    if (!command) return;
    process.argv = [node, file, ...command.args];
    for (const note of command.notes) writeNote(note);
  });
}

/** Ends the process at once when a precondition is not met. */
function endWithout(check: () => void): void {
  try {
    check();
  } catch (error) {
    process.exit(report(error));
  }
}

/** Reports the failure in one line, and returns the exit code. */
function report(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : exitUsage;
  if (error instanceof UsageError) {
    writeNote(`error: ${error.message}`);
    return exitUsage;
  }
  if (error instanceof EspalierError) {
    writeNote(`error: ${error.message} (${error.code})\n${error.action}`);
    return exitFailure;
  }
  writeNote(`error: ${error instanceof Error ? error.message : String(error)}`);
  return exitFailure;
}
