import { formatCount, formatMs } from "../model/format.ts";
import { type QueueRow, queueRows, queuesNote, type ToldQueues } from "../model/queues.ts";
import { element, keyedList, type Part, panel, setFill, setText } from "./dom.ts";

/** Requests at which a bar is full. */
const fullAt = 64;

/** Who waits in routers, by class. */
export function createQueues(): Part<ToldQueues> {
  const body = element("tbody");
  const names = ["Class", "Waiting now", "Mean wait", "Refused"];
  const head = element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name)));
  const { node, aside } = panel(
    "Queues",
    "narrow",
    element("table", { class: "queues" }, element("thead", {}, head), body),
  );
  const show = keyedList<QueueRow>(body, ({ name }) => name, createRow);
  return {
    node,
    update(told) {
      setText(aside, queuesNote(told));
      show(queueRows(told));
    },
  };
}

function createRow({ name }: QueueRow): Part<QueueRow> {
  const fill = element("span", { class: "fill" });
  const queued = element("span", { class: "figure" });
  const wait = element("td", { class: "figure" });
  const shed = element("td", { class: "figure" });
  const meter = element("span", { class: "meter" }, element("span", { class: "track" }, fill), queued);
  const node = element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, meter), wait, shed);
  return {
    node,
    update(row) {
      setFill(fill, row.queued / fullAt);
      setText(queued, formatCount(row.queued));
      setText(wait, formatMs(row.waitMs));
      setText(shed, formatCount(row.shed));
    },
  };
}
