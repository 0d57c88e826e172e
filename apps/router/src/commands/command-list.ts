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
  demo: ["Run:", "a mesh of routers and simulated engines on this machine (`npm start`)"],
  try: ["Run:", "send a conversation to two routers, and see whether both turns met one engine"],
  status: ["Look:", "say how a running router is"],
  top: ["Look:", "watch the engines and routers of a running fleet"],
  engines: ["Look:", "list the engines of a running router, add one, take one out"],
  reload: ["Run:", "have a running router read its configuration again"],
  feeds: ["Look:", "list the KV event feeds of a running router"],
  explain: ["Look:", "say where a running router would send a request, or sent one, and why"],
  doctor: ["Look:", "check engines, other routers, ports, secrets and this machine before or while a router runs"],
  "check-config": ["Look:", "check a configuration and print what it comes to"],
  migrate: ["Look:", "translate another router's configuration into ours"],
  "verify-tokenizer": ["Look:", "compare a model's tokenizer and chat template with an engine's"],
  version: ["Look:", "print the version"],
  completion: ["Look:", "print a script that completes commands and flags in a shell"],
  replay: ["Measure:", "drive a trace at real endpoints, or at simulated engines, and measure"],
  record: ["Measure:", "write the live traffic of running routers as a trace, without its texts"],
  simulate: ["Measure:", "run a fleet in virtual time, and measure"],
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
