import { MessageChannel } from "node:worker_threads";
import { type LogFields, type Logger, onStdinEnd } from "@espalier/core";
import { helpText, parseCommandLine } from "./command-line.ts";
import { type RunningEngineSim, startEngineSim } from "./start-engine-sim.ts";

/** Exit code of invalid flags. */
const usageExitCode = 2;

// It serves on when nobody reads what it says.
for (const output of [process.stdout, process.stderr]) output.on("error", () => {});

const fail = (error: unknown, code: number): never => {
  const message = error instanceof Error ? error.message : String(error);
  process.stderr.write(`espalier-engine-sim: ${message.split("\n", 1)[0]}\n`);
  process.exit(code);
};

const command = (() => {
  try {
    return parseCommandLine(process.argv.slice(2));
  } catch (error) {
    return fail(error, usageExitCode);
  }
})();

if (command.showHelp) {
  process.stdout.write(helpText());
} else {
  await run();
}

async function run(): Promise<void> {
  process.on("SIGINT", () => process.exit(0));
  process.on("SIGTERM", () => process.exit(0));
  // Without its parent, nothing else stops this process.
  process.on("disconnect", () => process.exit(0));
  if (command.exitWithStdin) onStdinEnd(() => process.exit(0));
  // Keeps the process up while a fault has closed the only listening socket.
  new MessageChannel().port1.ref();
  const sim = await startEngineSim({ ...command.options, logger: createStderrLogger() }).catch((error: unknown) =>
    fail(error, error instanceof RangeError ? usageExitCode : 1),
  );
  announce(sim);
}

function announce({ engines }: RunningEngineSim): void {
  const text = command.json ? `${JSON.stringify({ engines })}\n` : engines.map(({ url }) => `${url}\n`).join("");
  process.stdout.write(text);
  process.send?.({ type: "listening", engines });
}

/** Writes warnings and errors to standard error, one line each. */
function createStderrLogger(common: LogFields = {}): Logger {
  const write = (message: string, fields: LogFields = {}): void => {
    const all = Object.entries({ ...common, ...fields }).map(([name, value]) => ` ${name}=${textOf(value)}`);
    process.stderr.write(`espalier-engine-sim: ${message}${all.join("")}\n`);
  };
  const ignore = (): void => {};
  return {
    debug: ignore,
    info: ignore,
    warn: write,
    error: write,
    child: (fields) => createStderrLogger({ ...common, ...fields }),
  };
}

function textOf(value: unknown): string {
  return value instanceof Error ? value.message : typeof value === "string" ? value : JSON.stringify(value);
}
