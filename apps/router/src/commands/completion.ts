import { Argument, Command } from "commander";
import { writeResult } from "../output.ts";
import { addCommand } from "./command-list.ts";
import { loadEveryCommand } from "./command-loaders.ts";

export function registerCompletion(program: Command): void {
  addCommand(program, "completion")
    .description(
      "Prints a completion script. bash and zsh: `source <(espalier completion bash)`; fish: " +
        "`espalier completion fish > ~/.config/fish/completions/espalier.fish`.",
    )
    .addArgument(new Argument("<shell>", "which shell").choices(shells))
    .action(async (shell: Shell) => {
      const whole = new Command("espalier");
      for (const register of await loadEveryCommand()) register(whole);
      writeResult(completionScript(whole, shell));
    });
}

export const shells = ["bash", "zsh", "fish"] as const;
export type Shell = (typeof shells)[number];

/** Completions after a command, by the words that call it: `engines add`. */
type Words = ReadonlyMap<string, readonly string[]>;

/**
 * A shell script that completes `espalier`: commands, their subcommands and flags, and file names elsewhere.
 *
 * @param program with every command registered
 */
export function completionScript(program: Command, shell: Shell): string {
  const words: Words = new Map(wordsOf(program, []));
  return shell === "fish" ? fishScript(words) : bashScript(words, shell);
}

function wordsOf(command: Command, path: readonly string[]): [string, readonly string[]][] {
  const flags = command
    .createHelp()
    .visibleOptions(command)
    .flatMap(({ long }) => long ?? []);
  const children = command.commands.map((child) => child.name());
  return [
    [path.join(" "), [...children, ...flags]],
    ...command.commands.flatMap((child) => wordsOf(child, [...path, child.name()])),
  ];
}

/** Bash's own; zsh reads it through `bashcompinit`. */
function bashScript(words: Words, shell: "bash" | "zsh"): string {
  const cases = [...words].map(([path, following]) => `    ${quote(path)}) words=${quote(following.join(" "))} ;;`);
  const paths = [...words.keys()].filter((path) => path !== "").map((path) => `    ${quote(path)}) path="$next" ;;`);
  return [
    ...(shell === "zsh" ? ["autoload -U +X bashcompinit && bashcompinit"] : []),
    "_espalier() {",
    '  local current="${COMP_WORDS[COMP_CWORD]}" path="" next words word',
    '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
    '    next="${path:+$path }$word"',
    '    case "$next" in',
    ...paths,
    "    esac",
    "  done",
    '  case "$path" in',
    ...cases,
    "  esac",
    '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
    "}",
    "complete -o default -F _espalier espalier",
    "",
  ].join("\n");
}

function fishScript(words: Words): string {
  return [...words]
    .flatMap(([path, following]) => following.map((word) => fishLine(path, word)))
    .concat("")
    .join("\n");
}

function fishLine(path: string, word: string): string {
  const condition =
    path === ""
      ? "__fish_use_subcommand"
      : path
          .split(" ")
          .map((part) => `__fish_seen_subcommand_from ${part}`)
          .join("; and ");
  const what = word.startsWith("--") ? `-l ${word.slice(2)}` : `-f -a ${word}`;
  return `complete -c espalier -n ${quote(condition)} ${what}`;
}

/** For a POSIX shell, and for fish. */
function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
