/// <reference lib="dom" />

import { detailLink } from "../model/detail-address.ts";
import { formatCount, formatShort, formatTime } from "../model/format.ts";
import { type PathStep, type TreeBranch, treeOf } from "../model/prefix-tree.ts";
import { classesText, drainLossOf, modelsOf, type PrefixHolder, type PrefixRow } from "../model/prefixes.ts";
import type { EngineRow } from "../model/rows.ts";
import type { Sessions } from "../model/sessions.ts";
import { element, keyedList, type Part, panel, setAttribute, setText } from "./dom.ts";

export interface PrefixTreeState {
  readonly rows: readonly PrefixRow[];
  /** From the trunk to the prefix whose branches are shown; empty for the largest of all. */
  readonly path: readonly PathStep[];
  readonly engines: readonly EngineRow[];
  readonly sessions: Sessions;
  /** Why nothing is known of caches; undefined where it is. */
  readonly unknown: string | undefined;
}

/** Key of the address that leads back to the trunk. */
export const wholeTree = "all";

const sourceWords: Readonly<Record<PrefixHolder["source"], string>> = {
  fact: "reported by the engine",
  placement: "predicted, not reported yet",
  both: "predicted and reported by the engine",
};

const lineHeightPx = 24;
/** Width of the words behind a branch. */
const wordsPx = 460;
/** Width of the words where there is little room. */
const shortWordsPx = 244;
const leastBranchesPx = 76;
const widePx = 640;
/** A telephone has no room for the squares of engines. */
const leastSquaresPx = 420;
const bendPx = 7;
const shownHolders = 5;

/** The largest prefixes that prompts share, as a tree that can be walked: each branch leads to those that continue it. */
export function createPrefixTree(hueOf: (name: string) => string): Part<PrefixTreeState> {
  const path = element("nav", { class: "path", "aria-label": "Path in the prefix tree" });
  const chosen = element("p", { class: "chosen soft" });
  const picture = element("div", {
    class: "scroll tree",
    tabindex: "0",
    role: "group",
    "aria-label": "Shared prefixes",
  });
  const { node, aside } = panel("Prefix tree", "tree-panel", path, chosen, picture, legend());
  const showPath = keyedList<PathStep>(path, ({ hash }) => hash, createStep);
  let latest: PrefixTreeState | undefined;
  let drawn = "";
  const draw = (): void => {
    if (!latest || picture.clientWidth === 0) return;
    const models = latest.engines.map(({ key, models }) => [key, models]);
    const wanted = JSON.stringify([latest.rows, models, picture.clientWidth]);
    if (wanted === drawn) return;
    drawn = wanted;
    const focused = document.activeElement?.getAttribute("href");
    const drawing = drawTree(latest, picture.clientWidth - 4, hueOf);
    if (picture.querySelector("svg")) picture.querySelector("svg")?.replaceWith(drawing);
    else picture.prepend(drawing);
    if (focused?.startsWith("#prefix/")) {
      picture.querySelector<SVGElement>(`[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    }
  };
  new ResizeObserver(draw).observe(picture);
  return {
    node,
    update(state) {
      latest = state;
      const beyond = state.path.length > 0 ? state.rows.length - 1 : state.rows.length;
      setText(aside, state.unknown ?? asideText(state.path.length > 0, beyond));
      showChosen(chosen, state);
      showPath([{ hash: wholeTree, tokens: 0 }, ...state.path]);
      draw();
    },
  };
}

function asideText(isBelow: boolean, count: number): string {
  if (isBelow) return count > 0 ? `${count} shared below` : "no shared prefix below";
  if (count === 0) return "no shared prefixes yet";
  return count === 1 ? "1 shared prefix" : `the ${count} largest`;
}

/** Of the branch that was chosen: who asks for it, and what a drain of its engines would lose. */
function showChosen(node: HTMLElement, { path, rows, engines, sessions }: PrefixTreeState): void {
  const hash = path.at(-1)?.hash;
  const row = rows.find((each) => each.hash === hash);
  node.hidden = hash === undefined;
  if (!row) {
    setText(node, "");
    return;
  }
  const { users, holders, holderCount } = row;
  const classes = classesText(users);
  const asked =
    users.requests === 0
      ? `No request since ${formatTime(users.sinceMs)}.`
      : `${formatCount(users.requests)} ${users.requests === 1 ? "request" : "requests"} since ${formatTime(users.sinceMs)}: ${classes}.`;
  const model = modelsOf(row, engines).join(", ");
  const only = holders[0];
  const drain =
    holderCount === 1 && only
      ? `Cached only on ${only.target}: a drain loses ${formatShort(drainLossOf(only.target, rows, sessions).tokens)} tokens.`
      : `Cached on ${formatCount(holderCount)} engines: a drain of one loses nothing.`;
  const key = JSON.stringify([model, asked, drain, holders.map(({ target }) => target), users.sessions]);
  if (node.dataset.key === key) return;
  node.dataset.key = key;
  const names = holders
    .slice(0, shownHolders)
    .map(({ target }) => element("a", { href: detailLink("engine", target) }, target));
  const among = users.sessions.length > 0 ? ` Sessions: ${users.sessions.join(", ")}.` : "";
  node.replaceChildren(
    ...[element("strong", {}, model || "Unknown model"), ` · ${asked}${among} ${drain} Engines: `],
    ...names.flatMap((name, at) => (at === 0 ? [name] : [", ", name])),
    holderCount > names.length ? ` and ${holderCount - names.length} more.` : ".",
  );
}

function createStep({ hash }: PathStep): Part<PathStep> {
  const link = element("a", { href: detailLink("prefix", hash) });
  return {
    node: link,
    update({ tokens }) {
      const size = tokens > 0 ? `, ${formatShort(tokens)} tokens` : "";
      setText(link, hash === wholeTree ? "All prefixes" : `${hash.slice(0, 8)}${size}`);
    },
  };
}

function legend(): HTMLElement {
  const entry = (source: PrefixHolder["source"], text: string): HTMLElement =>
    element("span", {}, element("span", { class: `holder hue-0 ${source}`, "aria-hidden": "true" }), text);
  return element(
    "p",
    { class: "soft legend" },
    element("span", {}, "Length: tokens. Thickness: engines. Select a branch to see its users."),
    entry("both", "reported by the engine"),
    entry("placement", "predicted, not reported yet"),
  );
}

const space = "http://www.w3.org/2000/svg";

function svg(
  name: string,
  attributes: Readonly<Record<string, string | number>>,
  ...children: readonly Node[]
): SVGElement {
  const made = document.createElementNS(space, name) as SVGElement;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  made.append(...children);
  return made;
}

function drawTree({ rows, engines }: PrefixTreeState, widthPx: number, hueOf: (name: string) => string): SVGElement {
  const branches = treeOf(rows);
  const isWide = widthPx >= widePx;
  const wordsOf = (row: PrefixRow): string => wordsOn(row, engines, isWide);
  const heightPx = Math.max(1, branches.length) * lineHeightPx + 4;
  const branchesPx = Math.max(leastBranchesPx, widthPx - (isWide ? wordsPx : shortWordsPx));
  const xOf = (share: number): number => 6 + share * (branchesPx - 12);
  const yOf = (line: number): number => line * lineHeightPx + lineHeightPx / 2;
  const roots = branches.filter(({ row }) => row.depth === 0);
  const trunk = svg("path", { class: "trunk", d: `M6 ${yOf(0)}V${yOf(roots.at(-1)?.line ?? 0)}` });
  const drawn = branches.map((branch) => drawBranch(branch, { xOf, yOf, widthPx, hueOf, wordsOf }));
  const size = { width: widthPx, height: heightPx, viewBox: `0 0 ${widthPx} ${heightPx}` };
  return svg("svg", { class: "tree-picture", ...size }, ...(roots.length > 1 ? [trunk] : []), ...drawn);
}

interface Scale {
  readonly xOf: (share: number) => number;
  readonly yOf: (line: number) => number;
  readonly widthPx: number;
  readonly hueOf: (name: string) => string;
  readonly wordsOf: (row: PrefixRow) => string;
}

/** Behind a branch: its size, and where there is room its model and the classes that ask for it. */
function wordsOn(row: PrefixRow, engines: readonly EngineRow[], isWide: boolean): string {
  const holders = `${row.holderCount} ${row.holderCount === 1 ? "engine" : "engines"}`;
  const [model] = modelsOf(row, engines);
  const classes = isWide ? classesText(row.users) : "";
  return [`${formatShort(row.tokens)} tokens`, holders, model ?? "", classes].filter(Boolean).join(" · ");
}

function drawBranch({ row, ...at }: TreeBranch, { xOf, yOf, widthPx, hueOf, wordsOf }: Scale): SVGElement {
  const [x0, x1, y0, y] = [xOf(at.fromShare), xOf(at.toShare), yOf(at.fromLine), yOf(at.line)];
  const start = y0 === y ? `M${x0} ${y}` : `M${x0} ${y0}V${y - bendPx}Q${x0} ${y} ${Math.min(x1, x0 + bendPx)} ${y}`;
  const words = wordsOf(row);
  const isSent = row.holders.every(({ source }) => source === "placement");
  const thickness = Math.min(7, 1 + Math.sqrt(row.holderCount));
  const label = svg("text", { x: x1 + 11, y: y + 4, class: "words" });
  label.textContent = words;
  const squares = row.holders.slice(0, widthPx < leastSquaresPx ? 0 : shownHolders).map(({ target, source }, place) =>
    svg("rect", {
      ...{ x: widthPx - (shownHolders - place) * 13, y: y - 5, width: 10, height: 10, rx: 3 },
      class: `square ${hueOf(target)} ${source}`,
    }),
  );
  const title = svg("title", {});
  title.textContent = [
    `${formatCount(row.tokens)} tokens (${row.continuations} branches), ${row.hash}`,
    ...row.holders.map(({ target, source }) => `${target}: ${sourceWords[source]}`),
  ].join("\n");
  const link = svg(
    "a",
    { href: detailLink("prefix", row.hash), class: "branch", "aria-label": `${words}, ${row.continuations} branches` },
    title,
    svg("rect", { class: "line", x: 0, y: y - lineHeightPx / 2, width: widthPx, height: lineHeightPx, rx: 5 }),
    svg("path", { class: isSent ? "wood sent" : "wood", d: `${start}H${x1}`, "stroke-width": thickness }),
    svg("circle", { class: "bud", cx: x1, cy: y, r: Math.max(3.5, thickness / 2 + 1.5) }),
    label,
    ...squares,
  );
  setAttribute(link, "data-depth", String(row.depth));
  return link;
}
