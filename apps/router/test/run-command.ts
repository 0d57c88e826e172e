import { Command, CommanderError } from "commander";
import { vi } from "vitest";

/** What a command of the program left behind when it was run in this process. */
export interface CommandOutcome {
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number | string | undefined;
  /** What the action threw, or how commander refused the arguments. */
  readonly error: unknown;
}

/** Runs one command as `espalier ...` would, with what it writes kept, and without its mark on this process. */
export async function runCommand(
  register: (program: Command) => void,
  ...written: readonly string[]
): Promise<CommandOutcome> {
  let stdout = "";
  let stderr = "";
  const program = new Command("espalier").exitOverride();
  register(program);
  for (const command of withChildren(program)) {
    command.exitOverride().configureOutput({
      writeErr: (text) => {
        stderr += text;
      },
    });
  }
  const out = vi.spyOn(process.stdout, "write").mockImplementation((text) => {
    stdout += text;
    return true;
  });
  const err = vi.spyOn(process.stderr, "write").mockImplementation((text) => {
    stderr += text;
    return true;
  });
  const exitCodeBefore = process.exitCode;
  const handlers = signalHandlers();
  try {
    process.exitCode = undefined;
    const error = await program.parseAsync([...written], { from: "user" }).then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    return { stdout, stderr, exitCode: process.exitCode, error };
  } finally {
    process.exitCode = exitCodeBefore;
    for (const { signal, handler } of signalHandlers()) {
      if (!handlers.some((before) => before.handler === handler)) process.off(signal, handler);
    }
    out.mockRestore();
    err.mockRestore();
  }
}

/** Whether commander refused the arguments, before any action. */
export const isUsageRefusal = (error: unknown): boolean => error instanceof CommanderError && error.exitCode !== 0;

const withChildren = (command: Command): Command[] => [command, ...command.commands.flatMap(withChildren)];

const signalHandlers = () =>
  (["SIGINT", "SIGTERM"] as const).flatMap((signal) =>
    process.listeners(signal).map((handler) => ({ signal, handler })),
  );
