/// <reference lib="dom" />
import { type Decision, decisionKey, endText, excludedText, matchedShare, reasonName } from "../model/decisions.ts";
import { type DetailAddress, detailLink } from "../model/detail-address.ts";
import {
  type ExplainedCandidate,
  type Explanation,
  type PastDecision,
  readExplanation,
  readPastRequest,
} from "../model/explanation.ts";
import { formatCount, formatMs, formatNumber, formatShare, formatShort, formatTime, unknown } from "../model/format.ts";

import { drainLossOf, type PrefixRow } from "../model/prefixes.ts";
import type { ProgramReport } from "../model/programs.ts";
import { type EngineRow, healthText } from "../model/rows.ts";
import type { Sessions } from "../model/sessions.ts";
import { createDecisionRow } from "./decisions.ts";
import { element, keyedList, type Part, setAttribute, setText } from "./dom.ts";
import { createPrograms } from "./programs.ts";
import { blockSourceText, sinceText } from "./tables.ts";

export interface DetailState {
  /** Undefined while the overview is shown. */
  readonly address: DetailAddress | undefined;
  readonly engines: readonly EngineRow[];
  readonly decisions: readonly Decision[];
  readonly prefixes: readonly PrefixRow[];
  readonly sessions: Sessions;
  /** Undefined before the first answer. */
  readonly programs: ProgramReport | undefined;
  /** Since when no router answers; then an engine has no figures. */
  readonly silentSinceMs: number | undefined;
}

/**
 * Asks a router where a request would go.
 *
 * @param body JSON, as a client would send it
 * @returns the answer of `POST /admin/explain`; throws an Error with the router's own words
 */
type AskExplain = (body: string) => Promise<unknown>;

/** Asks any router about an earlier request. Throws an Error with the router's own words. */
type AskPast = (requestId: string) => Promise<unknown>;

/** What the pages ask routers. */
export interface Questions {
  readonly explain: AskExplain;
  readonly past: AskPast;
}

/** The page of one engine, of one decision or of all programs, in place of the overview. */
export function createDetail(hueOf: (name: string) => string, ask: Questions): Part<DetailState> {
  const parts = {
    engine: createEnginePage(hueOf),
    decision: createDecisionPage(hueOf, ask),
    programs: createProgramsPage(hueOf),
  };
  const names = ["engine", "decision", "programs"] as const;
  const node = element("div", { class: "detail" }, ...names.map((name) => parts[name].node));
  let latest = "";
  return {
    node,
    update(state) {
      const { address } = state;
      const shown = address?.kind === "prefix" ? undefined : address;
      const text = shown ? `${shown.kind}/${shown.key}` : "";
      setAttribute(document.body, "data-detail", shown?.kind ?? false);
      for (const name of names) {
        parts[name].node.hidden = shown?.kind !== name;
        if (shown?.kind === name) parts[name].update({ ...state, key: shown.key });
      }
      if (text === latest) return;
      latest = text;
      // A link on top of a page may lead to a row of the overview.
      const row = text === "" ? document.querySelector(":target") : null;
      if (row) row.scrollIntoView({ block: "center" });
      else scrollTo(0, 0);
    },
  };
}

type KeyedState = DetailState & { readonly key: string };

/** A page's head: the way back, its name, and its state. */
function createHead() {
  const name = element("h2");
  const state = element("span", { class: "pill" });
  const back = element("a", { href: "#", class: "back" }, "← Overview");
  return { node: element("header", { class: "detail-head" }, back, name, state), name, state };
}

type Fact = readonly [name: string, value: string];

function createFacts(): Part<readonly Fact[]> {
  const node = element("dl", { class: "facts" });
  const show = keyedList<Fact>(
    node,
    ([name]) => name,
    ([name]) => {
      const value = element("dd");
      return {
        node: element("div", {}, element("dt", {}, name), value),
        update: ([, text]) => setText(value, text),
      };
    },
  );
  return { node, update: show };
}

function section(title: string, ...children: readonly HTMLElement[]): HTMLElement {
  return element("section", { class: "panel" }, element("h3", {}, title), ...children);
}

const shownDecisions = 20;
const shownPrefixes = 12;

function createEnginePage(hueOf: (name: string) => string): Part<KeyedState> {
  const head = createHead();
  const facts = createFacts();
  const decisions = element("ol", { class: "decisions" });
  const noDecision = element("p", { class: "soft" });
  const prefixes = element("ul", { class: "held" });
  const noPrefix = element("p", { class: "soft" });
  const showDecisions = keyedList<Decision>(decisions, decisionKey, createDecisionRow(hueOf));
  const showPrefixes = keyedList<PrefixRow>(prefixes, ({ hash }) => hash, createHeldPrefix);
  const loss = element("p");
  const node = element(
    "article",
    {},
    head.node,
    section("State", facts.node),
    section("Effect of a drain", loss),
    section("Latest decisions", noDecision, decisions),
    section("Cached shared prefixes", noPrefix, prefixes),
  );
  return {
    node,
    update({ key, engines, decisions: all, prefixes: rows, sessions, silentSinceMs }) {
      const row = engines.find((engine) => engine.key === key);
      setText(head.name, key);
      setAttribute(head.node, "data-health", row?.health ?? "down");
      const isOld = silentSinceMs !== undefined;
      const state = row ? healthText[row.health] : "unknown to this router";
      setText(head.state, isOld ? `was ${state}, ${sinceText(silentSinceMs)}` : state);
      facts.update(row && !isOld ? engineFacts(row) : []);
      setText(loss, row && !isOld ? drainText(row, rows, sessions) : "");
      const own = all.filter(({ target, prefillEngine }) => target === key || prefillEngine === key);
      showDecisions(own.slice(0, shownDecisions));
      setText(noDecision, own.length === 0 ? "No recent decision." : "");
      const held = rows.filter(({ holders }) => holders.some(({ target }) => target === key));
      showPrefixes(held.slice(0, shownPrefixes));
      setText(noPrefix, held.length === 0 ? "No prefix in the tree." : "");
    },
  };
}

function engineFacts(row: EngineRow): readonly Fact[] {
  const count = (value: number | null): string => (value === null ? unknown : formatCount(value));
  const capacity = row.capacity === null ? "" : ` of ${formatShort(row.capacity)}`;
  return [
    ...(row.note === "" ? [] : [["Reason", row.note] as const]),
    ["Models", row.models.join(", ") || unknown],
    ["Role", row.role],
    ["Region", row.region ?? unknown],
    ["Round trip", row.networkMs === 0 ? "< 1 ms" : formatMs(row.networkMs)],
    ["In flight, all routers", formatCount(row.inFlight)],
    ["Running (engine metrics)", count(row.running)],
    ["Waiting (engine metrics)", count(row.waiting)],
    ["Oldest wait", row.oldestSinceMs === null ? unknown : `since ${formatTime(row.oldestSinceMs)}`],
    ["Time to first token (median)", row.ttftMs === null ? unknown : formatMs(row.ttftMs)],
    ["Time per output token (median)", row.tpotMs === null ? unknown : formatMs(row.tpotMs)],
    ["Pending prefill tokens", formatCount(row.pendingPrefillTokens)],
    ["KV memory in use", row.kvUse === null ? unknown : formatShare(row.kvUse)],
    ["Cached blocks", `${formatShort(row.blocks)}${capacity}`],
    ["Share of known blocks", formatShare(row.share)],
    ["Block source", blockSourceText[row.source]],
    ["Feed owner", row.owner ?? unknown],
    ["Feed", row.quality ?? unknown],
  ];
}

/** What a drain would cost, in words. */
function drainText(row: EngineRow, rows: readonly PrefixRow[], sessions: Sessions): string {
  const { prefixes, tokens, sessions: moved } = drainLossOf(row.key, rows, sessions);
  const running = `${formatCount(row.inFlight)} ${row.inFlight === 1 ? "request" : "requests"} in flight would finish`;
  const cache =
    prefixes === 0
      ? "no shared prefix would be lost: other engines cache all of them"
      : `${formatShort(tokens)} tokens of ${formatCount(prefixes)} shared ${prefixes === 1 ? "prefix" : "prefixes"}, cached on no other engine, would be recomputed`;
  return `${running}, ${formatCount(moved)} ${moved === 1 ? "session" : "sessions"} would move, and ${cache}.`;
}

function createHeldPrefix({ hash }: PrefixRow): Part<PrefixRow> {
  const text = element("span", { class: "soft" });
  return {
    node: element("li", {}, element("a", { href: detailLink("prefix", hash) }, hash.slice(0, 8)), text),
    update: ({ tokens, holderCount }) =>
      setText(text, `${formatShort(tokens)} tokens, on ${holderCount} ${holderCount === 1 ? "engine" : "engines"}`),
  };
}

function createDecisionPage(hueOf: (name: string) => string, ask: Questions): Part<KeyedState> {
  const head = createHead();
  const facts = createFacts();
  const engine = element("a", { class: "name" });
  const steps = element("ol", { class: "decisions" });
  const showSteps = keyedList<Decision>(steps, decisionKey, createDecisionRow(hueOf));
  const form = createExplainForm(ask.explain);
  const why = createWhy(ask.past);
  const node = element(
    "article",
    {},
    head.node,
    section("Decision", element("p", { class: "lead" }, engine), facts.node),
    section("Why", why.node),
    section("Session", steps),
    form.node,
  );
  let known: Decision | undefined;
  return {
    node,
    update({ key, decisions }) {
      // It may have left the list while somebody reads it.
      known =
        decisions.find((one) => decisionKey(one) === key) ?? (known && decisionKey(known) === key ? known : undefined);
      setText(head.name, known ? `Decision at ${formatTime(known.atMs)}` : "Decision");
      setText(head.state, known ? `by ${known.router}` : "no longer in the log");
      facts.update(known ? decisionFacts(known) : []);
      setText(engine, known ? known.target : "");
      setAttribute(engine, "href", known ? detailLink("engine", known.target) : false);
      const session = known?.session ?? null;
      showSteps(session === null ? [] : decisions.filter((one) => one.session === session).slice(0, shownDecisions));
      form.update(known?.model ?? "");
      why.update(known?.requestId ?? "");
    },
  };
}

function createProgramsPage(hueOf: (name: string) => string): Part<KeyedState> {
  const programs = createPrograms(hueOf);
  return { node: element("article", {}, ...programs.nodes), update: programs.update };
}

/** What the router that decided remembers of it. It is asked for once, by whichever router the page came from. */
function createWhy(past: AskPast): Part<string> {
  const node = element("div", { "aria-live": "polite" });
  let asked = "";
  return {
    node,
    update(requestId) {
      if (requestId === "" || requestId === asked) return;
      asked = requestId;
      node.replaceChildren(element("p", { class: "soft" }, `Loading request ${requestId} …`));
      void past(requestId)
        .then((answer) => readPastRequest(answer).map(pastOf))
        .catch((error: unknown) => [
          element("p", { class: "soft" }, error instanceof Error ? error.message : String(error)),
        ])
        .then((shown) => {
          if (asked === requestId) node.replaceChildren(...shown);
        });
    },
  };
}

function pastOf({ summary, target, candidates, excluded }: PastDecision): HTMLElement {
  const rows = candidates.map(({ key, cost, matchedTokens, inFlight, networkMs }) =>
    tableRow(key, key === target, [
      cost === null ? unknown : formatNumber(cost),
      formatCount(matchedTokens),
      formatCount(inFlight),
      networkMs === null ? unknown : formatMs(networkMs),
    ]),
  );
  return element(
    "div",
    { class: "explanation" },
    element("p", { class: "lead" }, summary),
    candidateTable(["Engine", "Cost", "Cached tokens", "In flight", "Network"], rows),
    ...excludedList(excluded.map(({ key, reason }) => `${key}: ${reason.replaceAll("_", " ")}`)),
  );
}

function candidateTable(heads: readonly string[], rows: readonly HTMLElement[]): HTMLElement {
  const head = element("tr", {}, ...heads.map((name) => element("th", { scope: "col" }, name)));
  const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
  const box = { class: "scroll candidates", tabindex: "0", role: "group", "aria-label": "Candidates" };
  return element("div", box, table);
}

function tableRow(key: string, isChosen: boolean, texts: readonly string[]): HTMLElement {
  return element(
    "tr",
    { "data-chosen": isChosen },
    element("th", { scope: "row" }, element("a", { href: detailLink("engine", key) }, key)),
    ...texts.map((text) => element("td", {}, text)),
  );
}

function decisionFacts(decision: Decision): readonly Fact[] {
  const { model, policy, promptTokens, matchedTokens, queuedMs, attempt, prefillEngine, session, className, pull } =
    decision;
  return [
    ["Reason", reasonName(decision.reason)],
    ["Engines not eligible", excludedText(decision) || "none"],
    ["End", endText(decision) || unknown],
    ["Policy", policy],
    ["Model", model],
    ["Prompt", `${formatCount(promptTokens)} tokens`],
    ["Cached on the engine", `${formatCount(matchedTokens)} tokens, ${formatShare(matchedShare(decision))}`],
    ...(pull
      ? [["Fetched from", `${pull.from}: ${formatCount(pull.tokens)} tokens, ${formatMs(pull.ms)}`] as const]
      : []),
    ["Queueing time", formatMs(queuedMs)],
    ["Attempt", String(attempt)],
    ["Prefill engine", prefillEngine ?? "the same engine"],
    ["Class", className ?? "not queued"],
    ["Session", session ?? "none"],
  ];
}

/** Routers keep no prompts, so whoever wants to know more of a decision brings the request. */
function createExplainForm(explain: AskExplain): Part<string> {
  const body = element("textarea", { id: "explained", rows: "7", spellcheck: "false", required: true });
  const button = element("button", { type: "submit", class: "primary" }, "Explain");
  const wrong = element("p", { class: "wrong", role: "alert" });
  const answer = element("div", { "aria-live": "polite" });
  const hint =
    "Routers do not store prompts. Paste a client's request to see where it would be routed now, and why. No engine receives the request.";
  const form = element(
    "form",
    { class: "explain" },
    element("p", { class: "soft" }, hint),
    element("label", { for: "explained" }, "Request body (JSON)"),
    body,
    button,
    wrong,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    button.disabled = true;
    setText(wrong, "");
    explain(body.value)
      .then((report) => answer.replaceChildren(explanationOf(readExplanation(report))))
      .catch((error: unknown) => setText(wrong, error instanceof Error ? error.message : String(error)))
      .finally(() => {
        button.disabled = false;
      });
  });
  let model = "";
  return {
    node: section("Explain a request", form, answer),
    update(given) {
      if (given === "" || given === model) return;
      model = given;
      if (body.value === "" || answer.childElementCount === 0) {
        body.value = JSON.stringify({ model, messages: [{ role: "user", content: "…" }] }, null, 2);
      }
    },
  };
}

const shownCandidates = 64;

function explanationOf({
  choice,
  reason,
  policy,
  router,
  promptTokens,
  blocks,
  candidates,
  excluded,
}: Explanation): HTMLElement {
  const chosen = choice === null ? "No engine is eligible." : `${choice}: ${reasonName(reason)}`;
  const looked = blocks === null ? "" : `, ${formatCount(blocks)} blocks looked up`;
  const where = router === "" ? "" : ` at ${router}`;
  const about = `${formatCount(promptTokens)} tokens${looked}; policy ${policy}${where}`;
  const heads = ["Engine", "Probability", "Cost", "In flight", "Known blocks", "Cost terms"];
  const rows = candidates.slice(0, shownCandidates).map((candidate) => candidateRow(candidate, choice));
  return element(
    "div",
    { class: "explanation" },
    element("p", { class: "lead" }, chosen),
    element("p", { class: "soft" }, about),
    candidateTable(heads, rows),
    ...excludedList(excluded.map(({ key, reasons }) => `${key}: ${reasons}`)),
  );
}

function excludedList(lines: readonly string[]): readonly HTMLElement[] {
  if (lines.length === 0) return [];
  return [element("h4", {}, "Excluded"), element("ul", {}, ...lines.map((line) => element("li", {}, line)))];
}

function candidateRow(candidate: ExplainedCandidate, choice: string | null): HTMLElement {
  const { key, isEligible, filteredBy, probability, cost, inFlight, knownBlocks, terms } = candidate;
  const chance = isEligible ? formatShare(probability) : (filteredBy ?? "filtered").replaceAll("_", " ");
  const parts = terms
    .filter(([, value]) => formatNumber(value) !== "0")
    .map(([name, value]) => `${name.replace(/_ms$/, "").replaceAll("_", " ")} ${formatNumber(value)}`)
    .join(" · ");
  const costText = cost === null ? unknown : formatNumber(cost);
  return tableRow(key, key === choice, [chance, costText, formatCount(inFlight), formatCount(knownBlocks), parts]);
}
