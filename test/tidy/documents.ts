import { posix } from "node:path";
import { type Tree, violation } from "./tree.ts";

const isDocument = (path: string): boolean => path.endsWith(".md");

/** Relative links in documents lead to a file or folder of the tree, and to a heading or anchor in it. */
export function checkLinks(tree: Tree): string[] {
  const found: string[] = [];
  for (const [file, text] of tree) {
    if (!isDocument(file)) continue;
    for (const { target, offset } of linksOf(text)) {
      const message = brokenLink(tree, file, target);
      if (message) found.push(violation(file, text, offset, message));
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

function linksOf(text: string): { readonly target: string; readonly offset: number }[] {
  const prose = blankCode(text);
  const links: { readonly target: string; readonly offset: number }[] = [];
  const patterns = [
    /\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)/g,
    /^\s*\[[^\]]+\]:\s*<?([^\s>]+)/gm,
    /\s(?:src|href)="([^"]+)"/g,
  ];
  for (const pattern of patterns) {
    for (const match of prose.matchAll(pattern)) {
      links.push({ target: match[1] ?? "", offset: match.index + match[0].search(/\S/) });
    }
  }
  return links;
}

/** Pages that users read: neither decisions, nor pages that programs write. */
const readPage = /^(README\.md|docs\/(?!decisions\/|benchmarks\/).*\.md)$/;
const maxWords = 35_000;
const maxPageWords: Readonly<Record<string, number>> = { "docs/BENCHMARKS.md": 2_600, "docs/LIMITS.md": 4_000 };

/** Users find what they need in pages of at most 1,500 words, and 35,000 in all: a new page replaces another one. */
export function checkLengths(tree: Tree): string[] {
  const found: string[] = [];
  let all = 0;
  for (const [file, text] of tree) {
    if (!readPage.test(file) || /^Generated /m.test(text.slice(0, 400))) continue;
    const words = text.split(/\s+/).filter(Boolean).length;
    const max = maxPageWords[file] ?? 1_500;
    all += words;
    if (words > max) found.push(violation(file, text, 0, `has ${words} words, over ${max}: shorten it`));
  }
  return all > maxWords ? [...found, `docs: ${all} words in all, over ${maxWords}: shorten or merge pages`] : found;
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

/** Commands that documents name exist: scripts of npm, subcommands of espalier, files that `node` runs, parts of a bench. */
export function checkCommands(tree: Tree): string[] {
  const subcommands = subcommandsOf(tree);
  const found: string[] = [];
  for (const [file, text] of tree) {
    if (!isDocument(file)) continue;
    const add = (match: RegExpExecArray, what: string): void => {
      found.push(violation(file, text, match.index, `names ${what}, which does not exist: correct it`));
    };
    for (const match of text.matchAll(/\bnpm (?:run(?:-script)? ([\w:.-]*\w)|(start|test))\b([^\n`]*)/g)) {
      const script = match[1] ?? match[2] ?? "";
      const workspace = /\s(?:-w|--workspace)[ =]([\w@/-]+)/.exec(match[3] ?? "")?.[1];
      if (!scriptsOf(tree, workspace).includes(script)) add(match, `npm script ${script}`);
    }
    for (const match of text.matchAll(/\bnpx espalier +([a-z][a-z-]*)/g)) {
      if (!subcommands.has(match[1] ?? "")) add(match, `espalier ${match[1]}`);
    }
    for (const match of text.matchAll(/\bnode ((?:scripts|bench|test|deploy)\/[\w./-]*\w)/g)) {
      if (!tree.has(match[1] ?? "")) add(match, match[1] ?? "");
    }
    if (file !== limitsPage) continue;
    for (const match of text.matchAll(/`--part (\w+)`/g)) {
      if (!tree.get(limitParts)?.includes(`name: "${match[1]}"`)) add(match, `part ${match[1]} of bench -- limits`);
    }
  }
  return found;
}

const limitsPage = "docs/LIMITS.md";
const limitParts = "bench/src/limits/parts.ts";
const feedStates = "packages/shared-tree/src/events/feed-state.ts";
const feedsPage = "docs/concepts/feeds.md";

/** What `espalier feeds` names as the reason of a feed's state is explained to operators. */
export function checkFeedReasons(tree: Tree): string[] {
  const [, reasons = ""] = /export type FeedReason =([^;]*);/.exec(tree.get(feedStates) ?? "") ?? [];
  const rows = (tree.get(feedsPage) ?? "").split("\n").filter((line) => line.startsWith("| "));
  return [...reasons.matchAll(/\| "([\w-]+)"/g)]
    .filter(([, reason]) => !rows.some((row) => row.includes(`\`${reason}\``)))
    .map(([, reason]) => `${feedsPage}: explains no feed that is \`${reason}\`: add it to the table`);
}

/** Code that is a test's path from the root, and the names after it in the same list, which are of files beside it. */
const testPath = /`((?:(?:packages|apps)\/[\w*-]+\/)?test\/[\w./*-]+)`((?:(?:,| and)\s+`[\w.-]+`)*)/g;
/** What was, with the paths of its time, and a guide to writing a test. */
const otherPaths = /^(CHANGELOG\.md|docs\/decisions\/|docs\/guides\/write-a-policy\.md)/;

/** Tests that documents name exist, and each section of the threat model that claims something names tests. */
export function checkTests(tree: Tree): string[] {
  const exists = (path: string): boolean => {
    const pattern = path
      .split("*")
      .map((part) => part.replaceAll(".", "\\."))
      .join("[^/]*");
    const place = new RegExp(`^${pattern}(?:$|/|\\.(?:\\w+\\.)*ts$)`);
    return [...tree.keys()].some((file) => place.test(file));
  };
  const found: string[] = [];
  for (const [file, text] of tree) {
    if (!isDocument(file) || otherPaths.test(file)) continue;
    for (const { 1: first = "", 2: more = "", index } of text.matchAll(testPath)) {
      const beside = [...more.matchAll(/`([^`]+)`/g)].map(([, name]) => posix.join(posix.dirname(first), name!));
      for (const path of [first, ...beside]) {
        if (!exists(path))
          found.push(violation(file, text, index, `names the test ${path}, which does not exist: correct it`));
      }
    }
  }
  return [...found, ...untestedClaims(tree)];
}

const threatModel = "docs/THREAT_MODEL.md";
/** Sections that claim no defence. */
const claimless = /^(Who may do what|Left over)$/;

function untestedClaims(tree: Tree): string[] {
  const text = tree.get(threatModel) ?? "";
  return [...text.matchAll(/^## (.+)\n([\s\S]*?)(?=^## |$(?![\s\S]))/gm)].flatMap(
    ({ 1: title = "", 2: body = "", index }) => {
      const rows = body.split("\n").filter((line) => /^\| (?!what \|)/.test(line));
      const untested = rows.length === 0 || rows.some((row) => row.search(testPath) < 0 && !/`npm run /.test(row));
      if (claimless.test(title) || !untested) return [];
      return [
        violation(threatModel, text, index, `claims under "${title}" what no test is named for: add it to a table`),
      ];
    },
  );
}

/** Names of the npm scripts of a workspace, given by its folder; of the root without one. */
function scriptsOf(tree: Tree, workspace: string | undefined): string[] {
  const text = tree.get(workspace === undefined ? "package.json" : `${workspace}/package.json`) ?? "{}";
  const { scripts = {} } = JSON.parse(text) as { readonly scripts?: Readonly<Record<string, string>> };
  return Object.keys(scripts);
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

/** Documents whose figures are their own: measurements with their commands, what was measured once, and what an engine is given by its sources. */
const ownFigures = /^(CHANGELOG\.md|docs\/(BENCHMARKS|PRESETS)\.md|docs\/(benchmarks|decisions)\/)/;

const number = String.raw`\d[\d,.]*`;
/** What a measured figure looks like. */
const measured = new RegExp(
  [
    String.raw`${number} ?(?:%|per ?cent\b)`,
    String.raw`${number} ?(?:us|µs|ns)\b`,
    String.raw`${number} ?(?:[kMG]?B|requests|tokens|prompts|streams|events|blocks)(?:/s| (?:a|per) second)\b`,
    String.raw`${number} ?req/s\b`,
    String.raw`${number} times (?:as|the|less|more|faster|slower|that)\b`,
    // A spread, and a part of a distribution.
    String.raw`${number} (?:to|\.\.) ${number} (?:ms|s)\b`,
    String.raw`\b(?:mean|median|p50|p90|p95|p99|percentile)\b[^.|\n]{0,60}?${number} m?s\b`,
    // A row of a table with several of them.
    String.raw`(?:\|[^|\n]*\d\.\d[^|\n]*){2,}\|`,
  ].join("|"),
  "g",
);

/** Figures that look measured and are not: where, what, why. */
const settings: readonly (readonly [file: string, figure: string, reason: string])[] = [
  ["docs/LIMITS.md", "35 %", "a bound: a share of the descriptors"],
  ["docs/LIMITS.md", "5 %", "a bound: a share of the descriptors"],
  ["docs/LIMITS.md", "10 %", "a bound: a share of the descriptors"],
  ["docs/LIMITS.md", "8,000 tokens a second", "a constant: what is assumed before the first answer"],
  ["docs/LIMITS.md", "10 to 53 ms", "a setting: how long a router gathers what it tells"],
  ["docs/PROTOCOL.md", "5 %", "a rule: the change on which estimates are sent"],
  ["docs/guides/deploy.md", "5 to 30 s", "a setting: the TTL of a name"],
  ["docs/guides/disaggregation.md", "2,000 tokens a second", "a constant: what a full batch is taken to answer"],
  ["docs/guides/disaggregation.md", "60 %", "a constant: the part of an engine's KV blocks that counts"],
];

/** Measured figures of documents other than BENCHMARKS and its pages are in marked places, which `npm run docs` fills. */
export function checkFigures(tree: Tree, exceptions = settings): string[] {
  const found: string[] = [];
  const unused = new Set(exceptions);
  for (const [file, text] of tree) {
    if (!isDocument(file) || ownFigures.test(file)) continue;
    const prose = blankCode(text).replace(/<!-- figure: [^\n]*?<!-- \/figure -->/g, (place) =>
      " ".repeat(place.length),
    );
    for (const { 0: figure, index } of prose.matchAll(measured)) {
      const exception = exceptions.find(([where, what]) => where === file && figure === what);
      if (exception) unused.delete(exception);
      else
        found.push(
          violation(
            file,
            text,
            index,
            `has "${figure}": link to BENCHMARKS.md, or put it into docs/benchmarks/figures.json`,
          ),
        );
    }
  }
  for (const [file, figure] of unused) found.push(`${file}:1 no longer has "${figure}": drop the exception`);
  return found;
}

const summary = "docs/BENCHMARKS.md";
const benchmarkPages = "docs/benchmarks/";
const listOfPages = `${benchmarkPages}README.md`;
const publishedFigures = `${benchmarkPages}published.md`;

/**
 * The README of `docs/benchmarks` links every page there. A figure in a table of BENCHMARKS is in a page that its section
 * links to. What `published.md` says to be reproduced and ours is in a page that its row links to.
 */
export function checkBenchmarks(tree: Tree): string[] {
  const text = tree.get(summary) ?? "";
  const linked = new Set([listOfPages, ...pagesIn(listOfPages, tree.get(listOfPages) ?? "")]);
  const unlinked = [...tree.keys()]
    .filter((path) => path.startsWith(benchmarkPages) && isDocument(path) && !linked.has(path))
    .map((path) => `${path}:1 is not linked from ${listOfPages}: add it`);
  return [
    ...unlinked,
    ...sectionsOf(text).flatMap((section) =>
      tableRows(section).flatMap(({ line, cells }) =>
        figuresMissing(
          tree,
          { file: summary, line },
          cells.slice(1).map(({ cell }) => cell),
          pagesIn(summary, section),
        ),
      ),
    ),
    ...tableRows(tree.get(publishedFigures) ?? "").flatMap(({ line, cells }) =>
      figuresMissing(
        tree,
        { file: publishedFigures, line },
        cells.filter(({ header }) => /^(reproduced|ours)$/.test(header)).map(({ cell }) => cell),
        pagesIn(publishedFigures, line),
      ),
    ),
  ];
}

const sectionsOf = (text: string): readonly string[] => text.split(/^(?=## )/m);

/** The documents that a text links to. */
const pagesIn = (file: string, text: string): readonly string[] =>
  linksOf(text)
    .map(({ target }) => posix.join(posix.dirname(file), target.split("#")[0] ?? ""))
    .filter(isDocument);

interface TableRow {
  readonly line: string;
  readonly cells: readonly { readonly header: string; readonly cell: string }[];
}

function tableRows(text: string): readonly TableRow[] {
  return [...text.matchAll(/^(\|.*\|)\n\|[-|: ]+\|\n((?:\|.*\|\n?)*)/gm)].flatMap(([, head = "", body = ""]) => {
    const headers = cellsOf(head);
    return body
      .split("\n")
      .filter(Boolean)
      .map((line) => ({ line, cells: cellsOf(line).map((cell, at) => ({ header: headers[at] ?? "", cell })) }));
  });
}

const cellsOf = (line: string): readonly string[] =>
  line
    .slice(1, -1)
    .split("|")
    .map((cell) => cell.trim());

interface Place {
  readonly file: string;
  readonly line: string;
}

function figuresMissing(
  tree: Tree,
  { file, line }: Place,
  cells: readonly string[],
  pages: readonly string[],
): string[] {
  const figuresIn = (text: string): readonly string[] => text.match(/\d(?:[\d,.]*\d)?/g) ?? [];
  const known = new Set(pages.flatMap((page) => figuresIn(tree.get(page) ?? "")));
  const text = tree.get(file) ?? "";
  return cells
    .flatMap((cell) => figuresIn(blankCode(cell).replace(/\]\([^)]*\)/g, "]")))
    .filter((figure) => !known.has(figure))
    .map((figure) => violation(file, text, text.indexOf(line), `has ${figure}, which no linked page has: correct it`));
}
