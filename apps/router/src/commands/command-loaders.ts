import type { Command } from "commander";
import { type CommandName, commandNames } from "./command-list.ts";

/** Each command's modules, loaded only when it is called: loading all of them takes seconds. */
const loaders: Readonly<Record<CommandName, () => Promise<(program: Command) => void>>> = {
  serve: async () => (await import("./serve.ts")).registerServe,
  demo: async () => (await import("./demo.ts")).registerDemo,
  try: async () => (await import("./try.ts")).registerTry,
  status: async () => (await import("./status.ts")).registerStatus,
  top: async () => (await import("./top.ts")).registerTop,
  engines: async () => (await import("./engines.ts")).registerEngines,
  reload: async () => (await import("./reload.ts")).registerReload,
  feeds: async () => (await import("./feeds.ts")).registerFeeds,
  programs: async () => (await import("./programs.ts")).registerPrograms,
  explain: async () => (await import("./explain.ts")).registerExplain,
  doctor: async () => (await import("./doctor.ts")).registerDoctor,
  "check-config": async () => (await import("./check-config.ts")).registerCheckConfig,
  migrate: async () => (await import("./migrate.ts")).registerMigrate,
  "verify-tokenizer": async () => (await import("./verify-tokenizer.ts")).registerVerifyTokenizer,
  version: async () => (await import("./version.ts")).registerVersion,
  completion: async () => (await import("./completion.ts")).registerCompletion,
  replay: async () => (await import("./replay.ts")).registerReplay,
  record: async () => (await import("./record.ts")).registerRecord,
  simulate: async () => (await import("./simulate.ts")).registerSimulate,
};

/** The command that the arguments call or ask help for; undefined when there is none. */
export function calledCommand(written: readonly string[]): CommandName | undefined {
  const [first, second] = written.filter((word) => !word.startsWith("-"));
  const called = first === "help" ? second : first;
  return commandNames.find((each) => each === called);
}

/**
 * Loads the command that the arguments call or ask help for.
 *
 * @returns undefined when there is none, otherwise the function that registers it
 */
export async function loadCalledCommand(
  written: readonly string[],
): Promise<{ readonly name: CommandName; readonly register: (program: Command) => void } | undefined> {
  const name = calledCommand(written);
  return name === undefined ? undefined : { name, register: await loaders[name]() };
}

/** For code that inspects all commands. */
export function loadEveryCommand(): Promise<readonly ((program: Command) => void)[]> {
  return Promise.all(commandNames.map((name) => loaders[name]()));
}
