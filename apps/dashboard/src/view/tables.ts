import { detailLink, placeId, placeLink } from "../model/detail-address.ts";
import { refusalText } from "../model/findings.ts";
import { formatCount, formatMs, formatRate, formatShare, formatShort, formatTime, unknown } from "../model/format.ts";
import type { RefusedLink } from "../model/overview.ts";
import {
  countAlive,
  countHealthy,
  type EngineOrder,
  type EngineRow,
  type EngineView,
  healthText,
  isAbsent,
  isIdle,
  isUnresponsive,
  type QueueRow,
  queueRows,
  queuesNote,
  type RouterQueues,
  type RouterRow,
  viewedEngines,
} from "../model/rows.ts";
import { element, keyedList, type Part, panel, setAttribute, setFill, setText, sortHeads } from "./dom.ts";

const engineColumns: Readonly<Record<EngineOrder, string>> = {
  name: "Engine",
  state: "State",
  load: "In flight",
  memory: "KV memory",
  blocks: "Cached blocks",
  share: "Block share",
};

interface EnginesState {
  readonly rows: readonly EngineRow[];
  /** Since when no router answers; then figures are of before, and not shown. */
  readonly silentSinceMs: number | undefined;
}

/** Engines: load, memory, cached blocks. They are searched, and sorted by what the heads of columns say. */
export function createEngines(hueOf: (name: string) => string): Part<EnginesState> {
  const body = element("tbody");
  let view: EngineView = { by: "state", isDescending: true, query: "" };
  let latest: EnginesState = { rows: [], silentSinceMs: undefined };
  const look = (change: Partial<EngineView>): void => {
    view = { ...view, ...change };
    update(latest);
  };
  const heads = sortHeads<EngineOrder>(engineColumns, (by) => by !== "name", look);
  const search = element("input", { type: "search", placeholder: "Search engines", "aria-label": "Search engines" });
  search.addEventListener("input", () => look({ query: search.value }));
  // A link to a row that the search leaves out ends the search.
  addEventListener("hashchange", () => {
    const isSought = latest.rows.some(({ key }) => placeLink("engine", key) === location.hash);
    if (!isSought || view.query === "" || document.querySelector(":target")) return;
    search.value = "";
    look({ query: "" });
    location.replace(location.hash);
  });
  const table = element("table", { class: "engines" }, element("thead", {}, heads.node), body);
  const scroll = element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Engines" }, table);
  const { node, aside } = panel("Engines", "engines-panel", scroll);
  const count = element("span");
  aside.append(search, count);
  const show = keyedList<EngineRow>(
    body,
    ({ key }) => key,
    createEngineRow(hueOf, () => latest.silentSinceMs !== undefined),
  );
  const update = (state: EnginesState): void => {
    latest = state;
    const { rows, silentSinceMs } = state;
    const { healthy } = countHealthy(rows);
    const inFlight = rows.reduce((sum, row) => sum + row.inFlight, 0);
    const found = viewedEngines(rows, view);
    const shown = found.length === rows.length ? "" : `${found.length} found · `;
    const now = `${healthy} of ${rows.length} up · ${formatShort(inFlight)} in flight`;
    setText(count, rows.length === 0 ? "" : `${shown}${silentSinceMs === undefined ? now : sinceText(silentSinceMs)}`);
    heads.update(view);
    show(found);
  };
  return { node, update };
}

/** Why there are no figures. */
export const sinceText = (silentSinceMs: number): string => `not known since ${formatTime(silentSinceMs)}`;

/** @param isOld whether what is known is of before: the state is told as a past one, and figures are left out */
const createEngineRow =
  (hueOf: (name: string) => string, isOld: () => boolean) =>
  (row: EngineRow): Part<EngineRow> => {
    const name = element("a", { class: "name", href: detailLink("engine", row.key) }, row.key);
    const state = element("span", { class: "state" });
    const note = element("span", { class: "soft" });
    const place = element("span", { class: "soft place" });
    const load = element("span", { class: "figure strong" });
    const waiting = element("span", { class: "soft" });
    const memory = meter("KV memory in use");
    const blocks = element("span", { class: "figure" });
    const share = meter("Share of known blocks");
    const node = element(
      "tr",
      { id: placeId("engine", row.key) },
      element("th", { scope: "row" }, element("span", { class: `dot ${hueOf(row.key)}` }), name, place),
      element("td", {}, state, note),
      element("td", {}, load, waiting),
      element("td", {}, memory.node),
      element("td", {}, blocks),
      element("td", {}, share.node),
    );
    return {
      node,
      update(now) {
        setAttribute(node, "data-health", now.health);
        const hasFigures = !isOld();
        const hasCache = hasFigures && !isAbsent(now);
        setText(state, `${isOld() ? "was " : ""}${healthText[now.health]}`);
        setText(note, isOld() ? now.models.join(", ") : noteText(now));
        setAttribute(note, "title", now.note || now.models.join(", "));
        setText(place, placeText(now));
        setText(load, hasFigures ? formatCount(now.inFlight) : unknown);
        setText(
          waiting,
          !hasFigures || now.waiting === null || now.waiting === 0 ? "" : `${formatCount(now.waiting)} waiting`,
        );
        const kvUse = hasCache ? now.kvUse : null;
        memory.set(kvUse, formatShare(kvUse));
        setText(blocks, !hasCache ? unknown : `${now.source === "placements" ? "≈ " : ""}${formatShort(now.blocks)}`);
        setAttribute(blocks, "title", blockSourceText[now.source]);
        share.set(hasCache ? now.share : null, formatShare(hasCache ? now.share : null));
      },
    };
  };

/** Why it takes no requests, and since when; of one that does, what it serves. */
function noteText(row: EngineRow): string {
  const { health, note, sinceMs, models, slow } = row;
  if (isUnresponsive(row)) return `unresponsive since ${formatTime(row.unresponsiveSinceMs!)}`;
  if (health === "up" && slow !== null) return `slow: ${formatMs(slow.ms)}, others ${formatMs(slow.othersMs)}`;
  if (isIdle(row)) return "idle, ready for requests";
  if (health === "up") return models.join(", ");
  const isTimed = health === "down" || health === "unreachable";
  return isTimed && sinceMs > 0 ? `since ${formatTime(sinceMs)} · ${note}` : note;
}

/** An engine's region, and the round trip to it where it is felt. */
function placeText({ region, networkMs }: EngineRow): string {
  const isFar = networkMs !== null && networkMs >= farMs;
  return [...(region === null ? [] : [region]), ...(isFar ? [formatMs(networkMs)] : [])].join(" · ");
}

const farMs = 3;

export const blockSourceText: Readonly<Record<EngineRow["source"], string>> = {
  facts: "reported by the engine",
  placements: "predicted from routed requests",
  nothing: "no data yet",
};

/** A bar and its figure. */
export function meter(label: string): { readonly node: HTMLElement; set(share: number | null, text: string): void } {
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

/** Routers: state, rates and lag, and how to kill one in a demonstration. */
export function createRouters(): Part<RoutersState> {
  const list = element("ul", { class: "routers" });
  const refusedList = element("ul", { class: "refused", "aria-label": "Refused" });
  const scroll = element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Routers" });
  scroll.append(list, refusedList);
  const { node, aside } = panel("Routers", "routers-panel", scroll);
  const show = keyedList<RouterRow>(list, ({ router }) => router, createRouterRow);
  const showRefused = keyedList<RefusedLink>(
    refusedList,
    ({ address, reason, isByUs }) => `${address} ${reason} ${isByUs}`,
    createRefusedRow,
  );
  return {
    node,
    update({ routers, refused }) {
      setText(aside, routers.length === 0 ? "" : `${countAlive(routers)} of ${routers.length} alive`);
      show(routers);
      showRefused(refused);
    },
  };
}

interface RoutersState {
  readonly routers: readonly RouterRow[];
  readonly refused: readonly RefusedLink[];
}

function createRefusedRow({ address, isByUs, reason, detail }: RefusedLink): Part<RefusedLink> {
  const figures = element("span", { class: "soft figures" });
  const name = element("span", { class: "name" }, address);
  const state = element("span", { class: "state" }, isByUs ? "refused" : "refuses this router");
  const light = element("span", { class: "light", "aria-hidden": "true" });
  const line = element("div", { class: "line" }, light, name, state);
  return {
    node: element("li", { title: detail }, line, figures),
    update({ claimed, count, lastMs }) {
      const who = claimed === null ? "" : `says it is ${claimed} · `;
      setText(figures, `${who}${refusalText(reason)} · ${formatCount(count)} times, last at ${formatTime(lastMs)}`);
    },
  };
}

function createRouterRow({ router }: RouterRow): Part<RouterRow> {
  const number = element("span", { class: "number", title: "Number in the session list" });
  const link = element("a", { class: "name" }, router);
  const state = element("span", { class: "state" });
  const figures = element("span", { class: "soft figures" });
  const warning = element("span", { class: "warning" });
  const kill = createKillHelp(router);
  const line = element(
    "div",
    { class: "line" },
    element("span", { class: "light", "aria-hidden": "true" }),
    link,
    number,
    state,
  );
  const node = element("li", { id: placeId("router", router) }, line, figures, warning, kill.node);
  return {
    node,
    update(row) {
      setAttribute(node, "data-state", row.state);
      setAttribute(node, "data-source", row.isSource);
      setAttribute(link, "href", row.origin !== null && row.state !== "gone" ? `${row.origin}/dashboard/` : false);
      setText(number, String(row.number));
      setAttribute(node, "data-ready", row.reasons.length === 0 ? "yes" : "no");
      setText(state, row.reasons.length > 0 && row.state === "live" ? "not ready" : stateText[row.state]);
      setText(figures, figuresOf(row));
      setAttribute(figures, "title", row.version ? `version ${row.version}, settings ${row.settings}` : false);
      setText(warning, row.state === "gone" ? "" : [...row.reasons, ...differenceText(row)].join("; "));
      kill.update(row.killCommand);
    },
  };
}

/// <reference lib="dom" />

const stateText: Readonly<Record<RouterRow["state"], string>> = {
  live: "ready",
  linked: "linked",
  draining: "draining",
  connecting: "connecting",
  silent: "silent",
  gone: "gone",
};

function differenceText({ version, differs }: RouterRow): readonly string[] {
  const sections = differs.filter((name) => name !== "version");
  const parts = [
    ...(differs.includes("version") ? [`version (${version})`] : []),
    ...(sections.length > 0 ? [`settings (${sections.join(", ")})`] : []),
  ];
  return parts.length > 0 ? [`differs in ${parts.join(" and ")}`] : [];
}

function figuresOf({
  isSource,
  requestsPerS,
  inFlight,
  lagMs,
  roundTripMs,
  state,
  hasOthers,
  lost,
}: RouterRow): string {
  if (lost) return `lost at ${formatTime(lost.sinceMs)}${lost.address ? ` · last at ${lost.address}` : ""}`;
  if (state === "gone") return hasOthers ? "its sessions continue on other routers" : "no router answers";
  const parts: string[] = isSource ? ["page source"] : [];
  if (requestsPerS !== null) parts.push(`${formatRate(requestsPerS)} req/s`);
  if (inFlight !== null) parts.push(`${formatCount(inFlight)} in flight`);
  if (lagMs !== null) parts.push(`lag ${lagMs === 0 ? "< 3 ms" : formatMs(lagMs)}`);
  else if (roundTripMs !== null) parts.push(`round trip ${roundTripMs === 0 ? "< 3 ms" : formatMs(roundTripMs)}`);
  return parts.join(" · ") || "no data";
}

/** The command that kills a router of a demonstration. */
function createKillHelp(router: string): Part<string | null> {
  const code = element("code");
  const copy = element("button", { type: "button", class: "copy" }, "Copy");
  const summary = element("summary", {}, "Kill command");
  const text = element("p", { class: "soft" }, "Run in a shell on this machine and watch the sessions:");
  const node = element("details", { class: "kill" }, summary, text, element("div", { class: "command" }, code, copy));
  setAttribute(summary, "aria-label", `Kill command: ${router}`);
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

/** Requests at which a bar is full. */
const fullAt = 64;

interface QueuesState {
  readonly queues: RouterQueues;
  /** Since when no router answers. */
  readonly silentSinceMs: number | undefined;
}

/** Queues of the routers, by class. */
export function createQueues(): Part<QueuesState> {
  const body = element("tbody");
  const names = ["Class", "Queued", "Mean wait", "Queue rejects"];
  const head = element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name)));
  const { node, aside } = panel(
    "Queues",
    "queues-panel",
    element("table", { class: "queues" }, element("thead", {}, head), body),
  );
  const show = keyedList<QueueRow>(body, ({ name }) => name, createQueueRow);
  return {
    node,
    update({ queues, silentSinceMs }) {
      setText(aside, silentSinceMs === undefined ? queuesNote(queues) : sinceText(silentSinceMs));
      show(queueRows(queues));
    },
  };
}

function createQueueRow({ name }: QueueRow): Part<QueueRow> {
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
