import { formatShort } from "../model/format.ts";
import type { PrefixHolder, PrefixRow } from "../model/prefixes.ts";
import { element, keyedList, type Part, panel, setAttribute, setFill, setText } from "./dom.ts";

const sourceWords: Readonly<Record<PrefixHolder["source"], string>> = {
  fact: "reported by the engine",
  placement: "sent there, not reported yet",
  both: "sent there, and reported by the engine",
};

const maxIndent = 8;
/** Tokens at which a bar is full; its length goes with their root. */
const fullAtTokens = 8_192;

/** The largest prefixes that prompts share, as a tree, and which engines hold them. */
export function createPrefixes(hueOf: (name: string) => string): Part<readonly PrefixRow[]> {
  const list = element("ol", { class: "prefixes" });
  const box = { class: "scroll middle", tabindex: "0", role: "group", "aria-label": "Shared prefixes" };
  const scroll = element("div", box, list);
  const { node, aside } = panel("Prefix tree", "wide", scroll, legend());
  const show = keyedList<PrefixRow>(list, ({ hash }) => hash, createRow(hueOf));
  return {
    node,
    update(rows) {
      setText(aside, rows.length === 0 ? "no shared prefixes yet" : `the ${rows.length} largest`);
      show(rows);
    },
  };
}

function legend(): HTMLElement {
  const entry = (source: PrefixHolder["source"], text: string): HTMLElement =>
    element("span", {}, element("span", { class: `holder hue-0 ${source}`, "aria-hidden": "true" }), text);
  return element(
    "p",
    { class: "soft legend" },
    entry("both", "reported by the engine"),
    entry("placement", "sent there, not reported yet"),
  );
}

const createRow = (hueOf: (name: string) => string) => (): Part<PrefixRow> => {
  const name = element("span", { class: "hash" });
  const fill = element("span", { class: "fill" });
  const size = element("span", { class: "figure" });
  const holders = element("span", { class: "holders" });
  const branches = element("span", { class: "soft branches" });
  const track = element("span", { class: "track" }, fill);
  const node = element("li", {}, name, track, size, holders, branches);
  const showHolders = keyedList<PrefixHolder>(holders, ({ target }) => target, createHolder(hueOf));
  return {
    node,
    update(row) {
      setAttribute(node, "data-depth", String(Math.min(maxIndent, row.depth)));
      setText(name, row.hash.slice(0, 8));
      setFill(fill, Math.sqrt(row.tokens / fullAtTokens));
      setText(
        size,
        row.depth > 0 ? `${formatShort(row.tokens)} (+${formatShort(row.ownTokens)})` : formatShort(row.tokens),
      );
      setAttribute(size, "title", "tokens of the whole prefix (and beyond its parent)");
      setText(
        branches,
        row.continuations === 0 ? "" : row.continuations === 1 ? "1 branch" : `${row.continuations} branches`,
      );
      showHolders(row.holders);
    },
  };
};

const createHolder =
  (hueOf: (name: string) => string) =>
  ({ target }: PrefixHolder): Part<PrefixHolder> => {
    const node = element("span", { role: "img" });
    return {
      node,
      update({ source }) {
        setAttribute(node, "class", `holder ${hueOf(target)} ${source}`);
        setAttribute(node, "title", `${target}: ${sourceWords[source]}`);
        setAttribute(node, "aria-label", `${target}: ${sourceWords[source]}`);
      },
    };
  };
