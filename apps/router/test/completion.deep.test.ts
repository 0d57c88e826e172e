import { execFileSync } from "node:child_process";
import { Command } from "commander";
import { expect, test } from "vitest";
import { completionScript, registerCompletion, shells } from "../src/commands/completion.ts";
import { isUsageRefusal, runCommand } from "./run-command.ts";

function program(): Command {
  const all = new Command("espalier");
  all.command("status").option("--json").option("--watch [seconds]");
  const engines = all.command("engines");
  engines.command("add").argument("<url>").option("--id <id>");
  engines.command("remove").argument("<id>");
  return all;
}

/** What bash offers for a line that ends at the cursor. */
function offered(line: string): string[] {
  const words = line.split(" ");
  const ask = `${completionScript(program(), "bash")}
COMP_WORDS=(${words.map((word) => `'${word}'`).join(" ")}); COMP_CWORD=${words.length - 1}; _espalier
printf '%s\\n' "\${COMPREPLY[@]}"`;
  return execFileSync("bash", ["-c", ask], { encoding: "utf8" }).split("\n").filter(Boolean).sort();
}

test.each([
  ["espalier ", ["status", "engines", "--help"]],
  ["espalier st", ["status"]],
  ["espalier status --", ["--help", "--json", "--watch"]],
  ["espalier engines ", ["--help", "add", "remove"]],
  ["espalier engines add --", ["--help", "--id"]],
  ["espalier engines add http://a --i", ["--id"]],
  ["espalier nothing-known s", ["status"]],
])("bash offers for %j: %j", (line, expected) => {
  expect(offered(line)).toEqual([...expected].sort());
});

test("zsh reads bash's script, fish gets lines of its own", () => {
  expect(completionScript(program(), "zsh")).toMatch(/^autoload .*bashcompinit\n/);
  const lines = completionScript(program(), "fish").split("\n");
  expect(lines).toContain("complete -c espalier -n '__fish_use_subcommand' -f -a engines");
  expect(lines).toContain(
    "complete -c espalier -n '__fish_seen_subcommand_from engines; and __fish_seen_subcommand_from add' -l id",
  );
});

test.each(shells)("%s: every real command is there", async (shell) => {
  const { stdout, error } = await runCommand(registerCompletion, "completion", shell);
  expect(error).toBeUndefined();
  for (const word of ["serve", "simulate", "check-config", "listen-port", "engines"]) expect(stdout).toContain(word);
});

test("another shell is refused", async () => {
  expect(isUsageRefusal((await runCommand(registerCompletion, "completion", "csh")).error)).toBe(true);
});
