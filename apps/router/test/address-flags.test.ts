import type { Command } from "commander";
import { Command as Program } from "commander";
import { expect, test } from "vitest";
import { loadEveryCommand } from "../src/commands/command-loaders.ts";
import { isUsageRefusal, runCommand } from "./run-command.ts";

/*
 * Symptom: `explain` took a router's admin address as `--url`, which was the clients' address in `try` and an engine's in
 * `verify-tokenizer`. Mechanism: each command named its own. Every command is asked here for what it takes by which name.
 */

const addresses = ["--admin", "--url", "--engine"];
const registers = await loadEveryCommand();
const commands = registers.map((register) => {
  const program = new Program();
  register(program);
  return { register, command: program.commands[0] as Command };
});

test("every flag for an address means the same in all commands", () => {
  const meanings = (flag: string) =>
    commands.flatMap(({ command }) =>
      command.options.flatMap(({ long, description }) => (long === flag ? [description] : [])),
    );
  for (const text of meanings("--admin")) expect(text).toMatch(/^admin address of/);
  for (const text of meanings("--url")) expect(text).toMatch(/^client address of/);
  for (const text of meanings("--engine")) expect(text).toMatch(/engine/i);
  for (const flag of addresses) expect(meanings(flag).length).toBeGreaterThan(0);
});

const wrong = commands.flatMap(({ register, command }) => {
  const taken = addresses.filter((flag) => command.options.some(({ long }) => long === flag));
  if (taken.length === 0) return [];
  const required = command.options.flatMap(({ long, mandatory }) => (mandatory && long ? [long, "x"] : []));
  return addresses
    .filter((flag) => !taken.includes(flag))
    .map((flag) => ({ name: command.name(), register, required, flag, taken }));
});

test.each(wrong)("$name, given $flag, says that it takes $taken", async ({ name, register, required, flag, taken }) => {
  const { stderr, error } = await runCommand(register, name, ...required, flag, "http://127.0.0.1:1");
  expect(isUsageRefusal(error)).toBe(true);
  for (const each of taken) expect(stderr).toContain(`${each}, a`);
  expect(stderr).toMatch(new RegExp(`unknown option '${flag}'\n\\(Did you mean `));
});
