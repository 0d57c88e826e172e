import type { EngineRow } from "../model/engines.ts";
import { formatCount, formatShare, formatShort, unknown } from "../model/format.ts";
import { element, keyedList, type Part, panel, setAttribute, setFill, setText } from "./dom.ts";

const healthWords: Readonly<Record<EngineRow["health"], string>> = {
  up: "up",
  draining: "draining",
  open: "left alone",
  starting: "starting",
  down: "down",
};

const sourceWords: Readonly<Record<EngineRow["source"], string>> = {
  facts: "announced by the engine itself",
  placements: "by what was sent there",
  nothing: "nothing is known yet",
};

const columns = ["Engine", "Load", "KV memory", "Holds", "Of all known"] as const;

/** Engines with load, memory, and what they hold. */
export function createEngines(hueOf: (name: string) => string): Part<readonly EngineRow[]> {
  const body = element("tbody");
  const head = element("tr", {}, ...columns.map((name) => element("th", { scope: "col" }, name)));
  const table = element("table", { class: "engines" }, element("thead", {}, head), body);
  const scroll = element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Engines" }, table);
  const { node, aside } = panel("Engines", "wide engines-panel", scroll);
  const show = keyedList<EngineRow>(body, ({ key }) => key, createRow(hueOf));
  return {
    node,
    update(rows) {
      const up = rows.filter(({ health }) => health === "up").length;
      setText(aside, rows.length === 0 ? "" : `${up} of ${rows.length} up`);
      show(rows);
    },
  };
}

/** A bar with a figure beside it. */
function meter(label: string): { readonly node: HTMLElement; set(share: number | null, text: string): void } {
  const fill = element("span", { class: "fill" });
  const track = element("span", { class: "track", role: "img", "aria-label": label }, fill);
  const text = element("span", { class: "figure" });
  return {
    node: element("span", { class: "meter" }, track, text),
    set(share, figure) {
      setFill(fill, share ?? 0);
      setText(text, figure);
      setAttribute(track, "aria-label", `${label}: ${figure}`);
    },
  };
}

const createRow =
  (hueOf: (name: string) => string) =>
  (row: EngineRow): Part<EngineRow> => {
    const name = element("span", { class: "name" }, row.key);
    const state = element("span", { class: "state" });
    const load = element("span", { class: "figure strong" });
    const waiting = element("span", { class: "soft" });
    const memory = meter("KV memory in use");
    const held = element("span", { class: "figure" });
    const source = element("span", { class: "soft" });
    const share = meter("Share of all blocks that are known of");
    const node = element(
      "tr",
      {},
      element("th", { scope: "row" }, element("span", { class: `dot ${hueOf(row.key)}` }), name, state),
      element("td", {}, load, waiting),
      element("td", {}, memory.node),
      element("td", {}, held, source),
      element("td", {}, share.node),
    );
    return {
      node,
      update(now) {
        setAttribute(node, "data-health", now.health);
        setText(state, healthWords[now.health]);
        setAttribute(state, "title", now.note || now.models);
        setText(load, formatCount(now.inFlight));
        setText(waiting, now.waiting === null || now.waiting === 0 ? "in flight" : `in flight, ${now.waiting} wait`);
        memory.set(now.kvUse, now.kvUse === null ? unknown : formatShare(now.kvUse));
        setText(held, formatShort(now.blocks));
        setText(source, now.source === "placements" ? "blocks, guessed" : "blocks");
        setAttribute(source, "title", sourceWords[now.source]);
        share.set(now.share, formatShare(now.share));
      },
    };
  };
