import { EspalierError, isJsonObject } from "@espalier/core";
import { parseYaml } from "@espalier/server";

/** A program that starts another one, whose words stand behind its own. */
const container = /(^|\/)(docker|podman|nerdctl)$/;
const shell = /(^|\/)(sh|ash|bash|dash|ksh|zsh)$/;

/**
 * Finds the command line that has most flags of a router: in a shell script, a unit of systemd, or a file of YAML such as a
 * manifest of Kubernetes or a compose file.
 *
 * @returns its words; undefined when no command line has a flag of the router
 */
export function commandLineIn(text: string, isFlag: (word: string) => boolean): readonly string[] | undefined {
  const mappings = text.split(/^---.*$/m).map(mappingIn);
  const commands = mappings.some((mapping) => mapping !== undefined)
    ? mappings.flatMap(containerCommands)
    : splitCommands(text);
  let most = 0;
  let found: readonly string[] | undefined;
  for (const words of commands.flatMap(shellScripts)) {
    const flags = words.filter(isFlag).length;
    if (flags <= most) continue;
    most = flags;
    found = words.some((word) => container.test(word)) ? words.slice(words.findIndex(isFlag)) : words;
  }
  return found;
}

function mappingIn(text: string): unknown {
  try {
    const { value } = parseYaml(text, "");
    return isJsonObject(value) ? value : undefined;
  } catch (error) {
    if (error instanceof EspalierError) return undefined;
    throw error;
  }
}

/** What every container of a mapping is started with. */
function containerCommands(tree: unknown): readonly (readonly string[])[] {
  if (Array.isArray(tree)) return tree.flatMap(containerCommands);
  if (!isJsonObject(tree)) return [];
  const words = [tree.entrypoint, tree.command, tree.args].flatMap((written) => {
    if (Array.isArray(written)) return written.map((each) => ourVariables(String(each)));
    return typeof written === "string" ? splitCommands(written).flat() : [];
  });
  return [words, ...Object.values(tree).flatMap(containerCommands)];
}

/** The commands of `sh -c SCRIPT`, or a command as it is. */
function shellScripts(words: readonly string[]): readonly (readonly string[])[] {
  const start = words.findIndex((word) => shell.test(word));
  const at = start < 0 ? -1 : words.findIndex((word, index) => index > start && /^-[a-z]*c$/.test(word));
  return at < 0 ? [words] : splitCommands(words[at + 1] ?? "");
}

const blank = /[^\S\n]+|#[^\n]*/y;
const redirection = /\d*(?:<<<?|<[>&]?|>[>&|]?)[^\S\n]*|&>>?[^\S\n]*/y;
const separator = /[\n;&|()]/y;
const word = /(?:\$\([^)]*\)|[^\s"'\\;&|<>()]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+|./sy;

/** The simple commands of a script as a POSIX shell splits them, without its variables and redirections. */
function splitCommands(text: string): readonly (readonly string[])[] {
  const joined = text.replace(/\\\r?\n/g, " ").replace(/\r\n/g, "\n");
  const commands: string[][] = [[]];
  let at = 0;
  const take = (token: RegExp): string | undefined => {
    token.lastIndex = at;
    const [taken] = token.exec(joined) ?? [];
    at += taken?.length ?? 0;
    return taken;
  };
  while (at < joined.length) {
    if (take(blank) !== undefined) continue;
    if (take(redirection) !== undefined) take(word);
    else if (take(separator) !== undefined) commands.push([]);
    else commands.at(-1)?.push(unquoted(take(word) ?? ""));
  }
  return commands;
}

/** `$NAME` of shells and compose files and `$(NAME)` of Kubernetes, in the form that our file has for a variable. */
const ourVariables = (text: string): string =>
  text.replace(/\$(?:([A-Za-z_]\w*)|\(([A-Za-z_]\w*)\))/g, (_, plain, called) => `\${${plain ?? called}}`);

const unquoted = (written: string): string =>
  written.replace(
    /\\(.)|"((?:[^"\\]|\\.)*)"|'([^']*)'|[^\\"']+/gs,
    (bare: string, escaped?: string, quoted?: string, literal?: string) =>
      escaped ?? literal?.replaceAll("${", () => "$${") ?? ourVariables(quoted?.replace(/\\(["\\`])/g, "$1") ?? bare),
  );
