import {
  type Decision,
  decisionKey,
  endText,
  isBadEnd,
  matchedShare,
  matchedText,
  reasonText,
} from "../model/decisions.ts";
import { detailLink } from "../model/detail-address.ts";
import { formatTime } from "../model/format.ts";
import { element, keyedList, type Part, panel, setAttribute, setFill, setText } from "./dom.ts";

export interface DecisionsState {
  readonly decisions: readonly Decision[];
  readonly skipped: number;
}

/** Rows on the page. */
const shownDecisions = 60;

/** Decisions as they happen. The list pauses while the pointer or the focus is in it. */
export function createDecisions(hueOf: (name: string) => string): Part<DecisionsState> {
  const list = element("ol", { class: "decisions" });
  const box = { class: "scroll", tabindex: "0", role: "log", "aria-live": "off", "aria-label": "Decisions" };
  const scroll = element("div", box, list);
  const { node, aside } = panel("Decisions", "decisions-panel", scroll);
  const show = keyedList<Decision>(list, decisionKey, createDecisionRow(hueOf));
  let isPaused = false;
  const pause = (paused: boolean) => () => {
    isPaused = paused;
  };
  scroll.addEventListener("mouseenter", pause(true));
  scroll.addEventListener("mouseleave", pause(false));
  scroll.addEventListener("focusin", pause(true));
  scroll.addEventListener("focusout", pause(false));
  return {
    node,
    update({ decisions, skipped }) {
      setText(aside, isPaused ? "paused" : skipped > 0 ? `${skipped} skipped` : "newest first");
      if (!isPaused) show(decisions.slice(0, shownDecisions));
    },
  };
}

/** One line of a list of decisions. */
export const createDecisionRow =
  (hueOf: (name: string) => string) =>
  (decision: Decision): Part<Decision> => {
    const fill = element("span", { class: "fill" });
    setFill(fill, matchedShare(decision));
    const { router, target, session, atMs } = decision;
    const end = element("span", { class: "end" });
    const node = element(
      "li",
      {},
      element(
        "a",
        { class: "when", href: detailLink("decision", decisionKey(decision)) },
        element("time", {}, formatTime(atMs)),
      ),
      element("span", { class: "router" }, router),
      element("span", { class: "arrow", "aria-label": "chose" }, "→"),
      element(
        "a",
        { class: "target", href: detailLink("engine", target) },
        element("span", { class: `dot ${hueOf(target)}` }),
        target,
      ),
      element("span", { class: "track thin", role: "img", "aria-label": matchedText(decision) }, fill),
      element("span", { class: "why" }, reasonText(decision)),
      end,
      element("span", { class: "session soft", title: session === null ? false : "Session" }, session ?? ""),
    );
    return {
      node,
      update(now) {
        setText(end, endText(now));
        setAttribute(end, "data-bad", isBadEnd(now));
      },
    };
  };
