/// <reference lib="dom" />
import { detailLink } from "../model/detail-address.ts";
import { formatAge, formatCount, formatMs, formatShare, formatShort, formatSpan, unknown } from "../model/format.ts";
import {
  endName,
  isFigure,
  type PauseRow,
  type ProgramOrder,
  type ProgramReport,
  type ProgramRow,
  type ProgramState,
  type ProgramView,
  programStates,
  programsNote,
  stateMeaning,
  totalOf,
  viewedPrograms,
} from "../model/programs.ts";
import type { EngineRow } from "../model/rows.ts";
import { element, keyedList, type Part, panel, setAttribute, setText, sortHeads } from "./dom.ts";
import { meter, sinceText } from "./tables.ts";

export interface ProgramsState {
  /** Undefined before the first answer. */
  readonly programs: ProgramReport | undefined;
  /** What the link looks for; empty for all. */
  readonly key: string;
  readonly engines: readonly EngineRow[];
  /** Since when no router answers; then nothing is known. */
  readonly silentSinceMs: number | undefined;
}

const columns: Readonly<Record<ProgramOrder, string>> = {
  name: "Program",
  state: "State",
  steps: "Steps",
  context: "Context",
  cached: "Cached",
  computed: "Computed",
  waited: "Waited",
  longest: "Longest wait",
  used: "Last active",
  age: "Age",
  engine: "Engine",
  model: "Model",
  parent: "Parent",
  tenant: "Tenant",
  source: "Known by",
};

const about =
  "A program is a client's session, or one agent in it: the requests with one session key. The page lists those of the last 30 minutes, over all routers.";
const terms: readonly (readonly [term: string, meaning: string])[] = [
  ["Steps", "answered requests"],
  ["Context", "tokens of the latest prompt and its answer"],
  ["Cached", "share of all prompt tokens that engines had cached"],
  ["Computed", "the other prompt tokens: its cost"],
  ["Waited", "time in routers' queues, over all requests"],
];

/** What the page says when no request named its session. */
const nothingText =
  "No request of the last 30 minutes named its session. Claude Code, Codex and OpenCode do so by themselves; other clients send the header x-session-id. See docs/start/coding-agents.md.";

/** All programs: how many are in each state, and a table of them. */
export function createPrograms(hueOf: (name: string) => string): {
  /** Below the head of its page. */
  readonly nodes: readonly HTMLElement[];
  update(state: ProgramsState): void;
} {
  let view: ProgramView = { by: "used", isDescending: true, state: undefined, query: "" };
  let latest: ProgramsState = { programs: undefined, key: "", engines: [], silentSinceMs: undefined };
  const look = (change: Partial<ProgramView>): void => {
    view = { ...view, ...change };
    show();
  };
  const states = createStates((state) => look({ state: view.state === state ? undefined : state }));
  const body = element("tbody");
  const heads = sortHeads<ProgramOrder>(columns, isFigure, look);
  const table = element("table", { class: "programs" }, element("thead", {}, heads.node), body);
  const scroll = element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Programs" }, table);
  const empty = element("p", { class: "empty" });
  const legend = element("dl", { class: "legend soft" }, ...terms.map(createTerm));
  const { node, aside } = panel("Programs", "programs-panel", scroll, empty, legend);
  const search = element("input", { type: "search", placeholder: "Search programs", "aria-label": "Search programs" });
  search.addEventListener("input", () => look({ query: search.value }));
  const count = element("span");
  aside.append(search, count);
  const linkOf = (id: string | null): string | undefined => latest.engines.find(({ engine }) => engine === id)?.key;
  const showRows = keyedList<ProgramRow>(body, keyOf, () => createProgramRow(hueOf, linkOf));
  const pauses = createPauses();
  const show = (): void => {
    const { programs: report, silentSinceMs } = latest;
    const isKnown = report !== undefined && silentSinceMs === undefined;
    const found = isKnown ? viewedPrograms(report.programs, view) : [];
    states.update({ counts: isKnown ? report.counts : undefined, chosen: view.state });
    heads.update(view);
    setText(count, silentSinceMs !== undefined ? sinceText(silentSinceMs) : report ? programsNote(found, report) : "");
    setText(empty, found.length > 0 || silentSinceMs !== undefined ? "" : whyEmpty(report, view));
    table.hidden = found.length === 0;
    legend.hidden = table.hidden;
    pauses.update(isKnown ? report.pauses : []);
    showRows(found);
  };
  return {
    nodes: [element("p", { class: "soft" }, about), states.node, node, pauses.node],
    update(state) {
      if (state.key !== latest.key) {
        search.value = state.key;
        view = { ...view, query: state.key, state: undefined };
      }
      latest = state;
      show();
    },
  };
}

const keyOf = ({ name, model }: ProgramRow): string => `${name} ${model}`;

function whyEmpty(report: ProgramReport | undefined, { state, query }: ProgramView): string {
  if (report === undefined) return "Loading …";
  if (report.programs.length === 0) return nothingText;
  const which = state === undefined ? "program" : `${state} program`;
  return query === "" ? `No ${which} now.` : `No ${which} matches the search.`;
}

function createTerm([term, meaning]: readonly [string, string]): HTMLElement {
  return element("div", {}, element("dt", {}, term), element("dd", {}, meaning));
}

interface StatesState {
  /** Undefined while they are not known. */
  readonly counts: ProgramReport["counts"] | undefined;
  readonly chosen: ProgramState | undefined;
}

/** How many programs are in each state. A state that is pressed is listed alone. */
function createStates(press: (state: ProgramState) => void): Part<StatesState> {
  const shares = element("div", { class: "shares", "aria-hidden": "true" });
  const parts = programStates.map((state) => {
    const value = element("span", { class: "value" }, unknown);
    const share = element("span", { "data-program": state });
    shares.append(share);
    const name = element("span", { class: "strong" }, element("span", { class: "light" }), state);
    const meaning = element("span", { class: "soft" }, stateMeaning[state]);
    const button = element("button", { type: "button", "data-program": state }, value, name, meaning);
    button.addEventListener("click", () => press(state));
    return { state, value, share, button };
  });
  const buttons = element("div", { class: "states", role: "group", "aria-label": "Programs by state" });
  buttons.append(...parts.map(({ button }) => button));
  return {
    node: element("div", { class: "program-states" }, buttons, shares),
    update({ counts, chosen }) {
      const total = counts ? totalOf(counts) : 0;
      for (const { state, value, share, button } of parts) {
        setText(value, counts ? formatCount(counts[state]) : unknown);
        setAttribute(button, "aria-pressed", String(state === chosen));
        share.style.flexGrow = String(total === 0 ? 0 : counts![state] / total);
      }
    },
  };
}

function createProgramRow(
  hueOf: (name: string) => string,
  /** The engine's row, if the page has it. */
  linkOf: (engine: string | null) => string | undefined,
): Part<ProgramRow> {
  const name = element("th", { scope: "row" });
  const state = element("span");
  const requests = element("span", { class: "soft" });
  const steps = element("span", { class: "figure" });
  const failed = element("span", { class: "soft" });
  const cached = meter("Cached share");
  const dot = element("span");
  const [engine, parent] = [element("a", { class: "target" }), element("a", { class: "target" })] as const;
  const cell = (...children: readonly HTMLElement[]) => element("td", {}, ...children);
  const [context, computed, waited, longest, used, age] = [cell(), cell(), cell(), cell(), cell(), cell()] as const;
  const [model, tenant, source] = [cell(), cell(), cell()] as const;
  const light = element("span", { class: "light", "aria-hidden": "true" });
  const node = element(
    "tr",
    {},
    ...[name, cell(light, state, requests), cell(steps, failed), context, cell(cached.node), computed, waited, longest],
    ...[used, age, cell(dot, engine), model, cell(parent), tenant, source],
  );
  return {
    node,
    update(row) {
      const key = linkOf(row.engine);
      setAttribute(node, "data-program", row.state);
      setText(name, row.name);
      setText(state, row.state);
      setText(requests, requestsText(row) || pauseText(row));
      setText(steps, formatCount(row.steps));
      setText(failed, row.failed === 0 ? "" : `${formatCount(row.failed)} failed`);
      setText(context, row.contextTokens === 0 ? unknown : formatShort(row.contextTokens));
      cached.set(row.cachedShare, formatShare(row.cachedShare));
      setText(computed, row.cachedShare === null ? unknown : formatShort(row.computedTokens));
      setText(waited, formatSpan(row.queuedMs));
      setText(longest, formatSpan(row.longestQueuedMs));
      setText(used, formatAge(row.idleMs));
      setText(age, formatSpan(row.ageMs));
      setAttribute(dot, "class", key === undefined ? false : `dot ${hueOf(key)}`);
      setText(engine, row.engine ?? unknown);
      setAttribute(engine, "href", key === undefined ? false : detailLink("engine", key));
      setText(parent, row.parent ?? unknown);
      setAttribute(parent, "href", row.parent === null ? false : detailLink("programs", row.parent));
      for (const [where, text] of [
        [model, row.model],
        [tenant, row.tenant ?? unknown],
        [source, row.source || unknown],
      ] as const) {
        setText(where, text.replace(/^header:/, ""));
        setAttribute(where, "title", text);
      }
    },
  };
}

/** What an idle program does, if its latest answer says it. */
const pauseText = ({ state, answerEnd }: ProgramRow): string =>
  state === "idle" && answerEnd !== null ? `after ${endName(answerEnd)}` : "";

/** How long programs pause, by how they are known and how their answers end. */
function createPauses(): Part<readonly PauseRow[]> {
  const body = element("tbody");
  const names = ["Known by", "Answer ended by", "Median", "p95", "Pauses"];
  const head = element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name)));
  const table = element("table", { class: "pauses" }, element("thead", {}, head), body);
  const scroll = element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Pauses" }, table);
  const { node, aside } = panel("Pauses", "pauses-panel", scroll);
  setText(aside, "from an answer to the next request, at this router");
  const show = keyedList<PauseRow>(body, ({ source, answerEnd }) => `${source} ${answerEnd}`, createPauseRow);
  return {
    node,
    update(rows) {
      node.hidden = rows.length === 0;
      show(rows);
    },
  };
}

function createPauseRow({ source, answerEnd }: PauseRow): Part<PauseRow> {
  const [median, p95, count] = [element("td"), element("td"), element("td")] as const;
  const name = element("th", { scope: "row" }, source.replace(/^header:/, ""));
  return {
    node: element("tr", {}, name, element("td", {}, endName(answerEnd)), median, p95, count),
    update(row) {
      setText(median, formatMs(row.p50Ms));
      setText(p95, formatMs(row.p95Ms));
      setText(count, formatCount(row.count));
    },
  };
}

/** How many requests it has under way, if more than one. */
const requestsText = ({ queued, running }: ProgramRow): string =>
  queued + running < 2 ? "" : `${formatCount(queued + running)} requests`;
