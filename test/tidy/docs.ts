import { posix } from "node:path";
import { lineAt, type Tree, type Violation } from "./tree.ts";
import { rootWorkspace, workspacesOf } from "./workspaces.ts";

const isDocument = (path: string): boolean => path.endsWith(".md");

/** Relative links in documents lead to a file or folder of the tree, and to a heading or anchor in it. */
export function checkLinks(tree: Tree): Violation[] {
  const found: Violation[] = [];
  for (const [file, text] of tree) {
    if (!isDocument(file)) continue;
    for (const { target, line } of linksOf(text)) {
      const message = brokenLink(tree, file, target);
      if (message) found.push({ file, line, message });
    }
  }
  return found;
}

function brokenLink(tree: Tree, file: string, target: string): string | undefined {
  if (/^[a-z][a-z0-9+.-]*:|^\/\//i.test(target)) return undefined;
  const [encodedPath = "", anchor] = target.split("#");
  const path = encodedPath === "" ? file : posix.join(posix.dirname(file), decodeURI(encodedPath));
  const text = tree.get(path);
  if (text === undefined) {
    const folder = path === "./" || path === "." ? "" : `${path.replace(/\/$/, "")}/`;
    const isFolder = [...tree.keys()].some((candidate) => candidate.startsWith(folder));
    return isFolder && !target.startsWith("/") ? undefined : `links to ${target}, which does not exist: correct it`;
  }
  if (!anchor || !isDocument(path) || anchorsOf(text).has(anchor)) return undefined;
  return `links to ${target}, but ${path} has no such heading: correct it`;
}

function linksOf(text: string): { readonly target: string; readonly line: number }[] {
  const prose = blankCode(text);
  const links: { readonly target: string; readonly line: number }[] = [];
  const patterns = [
    /\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)/g,
    /^\s*\[[^\]]+\]:\s*<?([^\s>]+)/gm,
    /\s(?:src|href)="([^"]+)"/g,
  ];
  for (const pattern of patterns) {
    for (const match of prose.matchAll(pattern)) {
      links.push({ target: match[1] ?? "", line: lineAt(prose, match.index + match[0].search(/\S/)) });
    }
  }
  return links;
}

/** The text with code, fenced or in backticks, blanked out, so that every line keeps its number. */
function blankCode(text: string): string {
  return blankFences(text).replace(/(`+)(?!`)[^\n]*?[^`\n]\1(?!`)/g, (code) => " ".repeat(code.length));
}

function blankFences(text: string): string {
  const blank = (code: string): string => code.replace(/[^\n]/g, " ");
  return text.replace(/^ *(```+|~~~+)[^\n]*\n[\s\S]*?^ *\1[^\n]*$/gm, blank);
}

/** The anchors of a document as GitHub makes them of its headings, and those set by hand. */
function anchorsOf(text: string): Set<string> {
  const anchors = new Set<string>();
  const unfenced = blankFences(text);
  for (const [, heading = ""] of unfenced.matchAll(/^#{1,6}\s+(.+?)\s*#*$/gm)) {
    const slug = heading
      .replace(/\[([^\]]*)\]\([^)]*\)/g, "$1")
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\p{M}_\- ]/gu, "")
      .replaceAll(" ", "-");
    let anchor = slug;
    for (let copy = 1; anchors.has(anchor); copy++) anchor = `${slug}-${copy}`;
    anchors.add(anchor);
  }
  for (const [, name = ""] of unfenced.matchAll(/<a\s+(?:id|name)="([^"]+)"/g)) anchors.add(name);
  return anchors;
}

/** Commands that documents name exist: scripts of npm, subcommands of espalier, files that `node` runs. */
export function checkCommands(tree: Tree): Violation[] {
  const rootScripts = Object.keys(rootWorkspace(tree)?.manifest.scripts ?? {});
  const allScripts = workspacesOf(tree).flatMap(({ manifest }) => Object.keys(manifest.scripts ?? {}));
  const subcommands = subcommandsOf(tree);
  const found: Violation[] = [];
  for (const [file, text] of tree) {
    if (!isDocument(file)) continue;
    const add = (match: RegExpExecArray, message: string): void => {
      found.push({ file, line: lineAt(text, match.index), message });
    };
    for (const match of text.matchAll(/\bnpm (?:run(?:-script)? ([\w:.-]*\w)|(start|test))\b([^\n`]*)/g)) {
      const script = match[1] ?? match[2] ?? "";
      const scripts = /\s(-w|--workspace)\b/.test(match[3] ?? "") ? allScripts : rootScripts;
      if (!scripts.includes(script)) add(match, `names npm script ${script}, which does not exist: correct it`);
    }
    for (const match of text.matchAll(/\bnpx espalier +([a-z][a-z-]*)/g)) {
      const subcommand = match[1] ?? "";
      if (!subcommands.has(subcommand)) add(match, `names espalier ${subcommand}, which does not exist: correct it`);
    }
    for (const match of text.matchAll(/\bnode ((?:scripts|bench|test)\/[\w./-]*\w)/g)) {
      if (!tree.has(match[1] ?? "")) add(match, `runs ${match[1]}, which does not exist: correct it`);
    }
  }
  return found;
}

/** Subcommands as the router declares them with commander or by name in its list, and the one that commander adds. */
function subcommandsOf(tree: Tree): Set<string> {
  const names = new Set(["help"]);
  for (const [file, text] of tree) {
    if (!file.startsWith("apps/router/src/")) continue;
    for (const match of text.matchAll(
      /(?:\.command|\bnew Command|\baddCommand)\((?:program, |\s*)["'`]([a-z][a-z-]*)/g,
    ))
      names.add(match[1] ?? "");
  }
  return names;
}

/** Files that the scripts of package.json files run with `node`, and their `bin`, exist (built ones as sources). */
export function checkScripts(tree: Tree): Violation[] {
  const root = rootWorkspace(tree);
  const found: Violation[] = [];
  for (const { folder, file, text, manifest } of [...(root ? [root] : []), ...workspacesOf(tree)]) {
    const scripts = Object.values(manifest.scripts ?? {}).flatMap((script) => [
      ...script.matchAll(/\bnode (\S+\.m?js)/g),
    ]);
    const programs = [...scripts.map((match) => match[1] ?? ""), ...Object.values(manifest.bin ?? {})];
    for (const program of programs) {
      const path = posix.join(folder, program);
      if (tree.has(path) || tree.has(path.replace("/dist/", "/src/").replace(/\.js$/, ".ts"))) continue;
      found.push({ file, line: lineAt(text, text.indexOf(program)), message: `runs ${program}: no such file` });
    }
  }
  return found;
}
