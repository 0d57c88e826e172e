import { placeId } from "../model/detail-address.ts";
import type { EventLine } from "../model/events.ts";
import { formatTime } from "../model/format.ts";
import { element, keyedList, type Part, panel, setText } from "./dom.ts";

interface EventsState {
  /** Newest first. */
  readonly lines: readonly EventLine[];
  readonly grafana: string | null;
}

const shownLines = 100;

/** What happened to engines and routers, whether anybody looked or not. */
export function createEvents(): Part<EventsState> {
  const list = element("ol", { class: "events" });
  const box = { class: "scroll", tabindex: "0", role: "log", "aria-live": "off", "aria-label": "Events" };
  const { node, aside } = panel("Events", "events-panel", element("div", box, list));
  const note = element("span");
  const link = element("a", { hidden: true, rel: "noreferrer", target: "_blank" }, "More in Grafana");
  aside.append(note, link);
  const show = keyedList<EventLine>(list, ({ key }) => key, createLine);
  let latest: EventsState["lines"] | undefined;
  return {
    node,
    update({ lines, grafana }) {
      link.hidden = grafana === null;
      if (grafana !== null) link.href = grafana;
      if (lines === latest) return;
      latest = lines;
      setText(note, lines.length === 0 ? "no event in 15 minutes" : "15 minutes");
      show(lines.slice(0, shownLines));
    },
  };
}

function createLine({ key, atMs, level, text, more }: EventLine): Part<EventLine> {
  const node = element(
    "li",
    { id: placeId("event", key), "data-level": level, title: more },
    element("time", {}, formatTime(atMs)),
    element("span", { class: "light", "aria-hidden": "true" }),
    element("span", {}, text),
  );
  return { node, update() {} };
}
