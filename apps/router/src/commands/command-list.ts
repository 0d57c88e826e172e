import type { Command } from "commander";

/** Flags for addresses, of which each command has those that it needs. */
const addressFlags: Readonly<Record<string, string>> = {
  "--admin": "a router's admin address",
  "--url": "an address for clients",
  "--engine": "an engine's address",
};

/** Commander's text about a mistake, with the address that a command takes where another one was given. */
export function withAddress(command: Command, text: string): string {
  const [, flag = ""] = /unknown option '(--[a-z]+)/.exec(text) ?? [];
  if (!Object.hasOwn(addressFlags, flag)) return text;
  const taken = command.options.flatMap(({ long }) =>
    long && Object.hasOwn(addressFlags, long) ? [`${long}, ${addressFlags[long]}`] : [],
  );
  return taken.length === 0 ? text : `error: unknown option '${flag}'\n(Did you mean ${taken.join("; or ")}?)\n`;
}

/** A command's purpose and heading. Listing needs only this, not the command's modules, which may be slow to load. */
const commands = {
  serve: ["Run:", "run a router"],
  demo: ["Run:", "run a mesh of routers with simulated engines (`npm start`)"],
  try: ["Run:", "send two turns to two routers and compare their engines"],
  status: ["Look:", "show the status of a router"],
  top: ["Look:", "watch routers and engines live"],
  engines: ["Look:", "list, add, drain and remove engines"],
  reload: ["Run:", "reload a router's configuration"],
  feeds: ["Look:", "list the KV event feeds of a router"],
  programs: ["Look:", "list sessions and agents: engine, steps, context, cached share"],
  explain: ["Look:", "explain where a request would go, or went, and why"],
  doctor: ["Look:", "check engines, routers, ports, secrets and this machine"],
  "check-config": ["Look:", "validate and print the effective configuration"],
  migrate: ["Look:", "translate another router's configuration"],
  "verify-tokenizer": ["Look:", "compare a model's tokenizer and chat template with an engine's"],
  version: ["Look:", "print the version"],
  completion: ["Look:", "print a shell completion script"],
  replay: ["Measure:", "replay a trace against endpoints or simulated engines"],
  record: ["Measure:", "record live traffic as a trace without text"],
  simulate: ["Measure:", "simulate a fleet in virtual time"],
} as const satisfies Readonly<Record<string, readonly [group: string, summary: string]>>;

export type CommandName = keyof typeof commands;

/** In the order of the help. */
export const commandNames = Object.keys(commands) as readonly CommandName[];

/** Adds a command that so far has only a name and a summary, under its heading. */
export function addCommand(program: Command, name: CommandName): Command {
  const [group, summary] = commands[name];
  const command = program.command(name).summary(summary).helpGroup(group);
  return command.configureOutput({ outputError: (text, write) => write(withAddress(command, text)) });
}
