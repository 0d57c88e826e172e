/// <reference lib="dom" />
import { formatCount, formatMs, formatRate } from "../model/format.ts";
import { countAlive, type RouterRow } from "../model/routers.ts";
import { element, keyedList, type Part, panel, setAttribute, setText } from "./dom.ts";

const stateWords: Readonly<Record<RouterRow["state"], string>> = {
  live: "followed live",
  linked: "linked",
  draining: "draining",
  silent: "silent",
  gone: "gone",
};

/** Routers, how late they hear of each other, and how to kill one where this is a demonstration. */
export function createRouters(): Part<readonly RouterRow[]> {
  const list = element("ul", { class: "routers" });
  const { node, aside } = panel("Routers", "narrow routers-panel", list);
  const show = keyedList<RouterRow>(list, ({ router }) => router, createRow);
  return {
    node,
    update(rows) {
      setText(aside, rows.length === 0 ? "" : `${countAlive(rows)} of ${rows.length} alive`);
      show(rows);
    },
  };
}

function createRow({ router }: RouterRow): Part<RouterRow> {
  const link = element("a", { class: "name" }, router);
  const state = element("span", { class: "state" });
  const figures = element("span", { class: "soft figures" });
  const kill = createKillHelp(router);
  const line = element(
    "div",
    { class: "line" },
    element("span", { class: "light", "aria-hidden": "true" }),
    link,
    state,
  );
  const node = element("li", {}, line, figures, kill.node);
  return {
    node,
    update(row) {
      setAttribute(node, "data-state", row.state);
      setAttribute(node, "data-source", row.isSource);
      setAttribute(link, "href", row.origin !== null && row.state !== "gone" ? `${row.origin}/dashboard/` : false);
      setText(state, row.isSource && row.state === "live" ? "read by this page" : stateWords[row.state]);
      setText(figures, figuresOf(row));
      kill.update(row.killCommand);
    },
  };
}

function figuresOf({ requestsPerS, inFlight, lagMs, roundTripMs, state, hasOthers }: RouterRow): string {
  if (state === "gone") return hasOthers ? "its sessions go on at the others" : "no router answers";
  const parts: string[] = [];
  if (requestsPerS !== null) parts.push(`${formatRate(requestsPerS)} req/s`);
  if (inFlight !== null) parts.push(`${formatCount(inFlight)} in flight`);
  if (lagMs !== null) parts.push(`lag ${lagMs === 0 ? "< 3 ms" : formatMs(lagMs)}`);
  else if (roundTripMs !== null) parts.push(`round trip ${roundTripMs === 0 ? "< 3 ms" : formatMs(roundTripMs)}`);
  return parts.join(" · ") || "not followed by this page";
}

/** The exact command, where the router is one of a demonstration. */
function createKillHelp(router: string): Part<string | null> {
  const code = element("code");
  const copy = element("button", { type: "button", class: "copy" }, "Copy");
  const summary = element("summary", {}, "Kill it");
  const text = element("p", { class: "soft" }, "In a shell on this machine; then watch its sessions:");
  const node = element("details", { class: "kill" }, summary, text, element("div", { class: "command" }, code, copy));
  setAttribute(summary, "aria-label", `How to kill ${router}`);
  copy.addEventListener("click", () => {
    void navigator.clipboard.writeText(code.textContent ?? "").then(() => setText(copy, "Copied"));
  });
  return {
    node,
    update(command) {
      node.hidden = command === null;
      setText(code, command ?? "");
    },
  };
}
