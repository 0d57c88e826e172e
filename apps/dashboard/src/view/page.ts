import type { FleetState } from "../follow/fleet-follower.ts";
import { type DetailAddress, programsLink } from "../model/detail-address.ts";
import { eventLines, type FleetEvent } from "../model/events.ts";
import { findingsOf } from "../model/findings.ts";
import { presentOf, type Series } from "../model/history.ts";
import type { RouterStatus } from "../model/overview.ts";
import type { PathStep } from "../model/prefix-tree.ts";
import type { PrefixRow } from "../model/prefixes.ts";
import type { ProgramReport } from "../model/programs.ts";
import { watchRejects } from "../model/rejects.ts";
import { type EngineRow, engineRows, isAbsent, isGone, routerRows } from "../model/rows.ts";
import { createDecisions } from "./decisions.ts";
import { createDetail, type Questions } from "./detail.ts";
import { createHues, element, type Part, setAttribute, setText, wholeRows } from "./dom.ts";
import { createEvents } from "./events.ts";
import { createFindings } from "./findings.ts";
import { createPlots } from "./plots.ts";
import { createPrefixTree } from "./prefix-tree.ts";
import { createSessions } from "./sessions.ts";
import { createEngines, createQueues, createRouters, sinceText } from "./tables.ts";

/// <reference lib="dom" />

interface PageState {
  readonly fleet: FleetState;
  readonly prefixes: readonly PrefixRow[];
  /** The way to the prefix whose branches these are. */
  readonly path: readonly PathStep[];
  /** Undefined before they were asked for. */
  readonly programs: ProgramReport | undefined;
  /** Undefined while the overview is shown. */
  readonly address: DetailAddress | undefined;
  /** Milliseconds since the Unix epoch. */
  readonly nowMs: number;
}

/** Everything below `body`. */
export function createPage(ask: Questions) {
  const hueOf = createHues();
  const main = byId("main");
  const parts = {
    bar: createBar(byId("bar")),
    findings: createFindings(byId("findings")),
    plots: createPlots(),
    engines: createEngines(hueOf),
    routers: createRouters(),
    events: createEvents(),
    decisions: createDecisions(hueOf),
    sessions: createSessions(hueOf),
    prefixes: createPrefixTree(hueOf),
    queues: createQueues(),
    detail: createDetail(hueOf, ask),
  };
  const { plots, engines, prefixes, decisions, sessions, routers, events, queues, detail } = parts;
  const column = (name: string, ...panels: readonly Part<never>[]): HTMLElement =>
    element("div", { class: `column ${name}` }, ...panels.map(({ node }) => node));
  main.replaceChildren(
    plots.node,
    column("fleet", engines, prefixes),
    column("requests", decisions),
    element("div", { class: "side" }, column("watch", routers, events), column("work", queues, sessions)),
    detail.node,
  );
  const linesOf = rememberLines();
  const rejectingOf = watchRejects();
  for (const box of main.querySelectorAll<HTMLElement>(".scroll"))
    wholeRows(box, ".scroll tbody tr, .scroll > :is(ol, ul) > li, .branch .line");
  let hasBeenLive = false;
  let waiting = 0;
  let feeds: number | null = null;
  return {
    /** Once a second: it is drawn anew. */
    updatePlots(series: Series): void {
      waiting = presentOf(series.waiting) ?? 0;
      parts.plots.update({ ...series, feeds });
    },
    update({ fleet, prefixes: rows, path, programs, address, nowMs }: PageState): void {
      const {
        source,
        overview,
        decisions,
        skipped,
        sessions,
        takeovers,
        followed,
        live,
        recent,
        moved,
        silentSinceMs,
      } = fleet;
      const isLive = source?.isLive === true;
      hasBeenLive ||= isLive;
      const engines = overview ? engineRows(overview, live) : [];
      const routers = routerRows(overview?.links, followed, isLive ? source.router : undefined);
      const refused = overview?.links.refused ?? [];
      for (const { key } of engines) hueOf(key);
      parts.bar.update({
        ...{ source: source?.router, isLive, hasBeenLive, policy: decisions[0]?.policy ?? "", view: address?.kind },
        models: [...new Set(overview?.engines.flatMap(({ models }) => models) ?? [])],
      });
      const queues = live.map(({ queues }) => queues);
      const counts = live.flatMap(({ traffic }) => traffic.feeds ?? []);
      feeds = counts.length === 0 ? null : Math.max(...counts);
      const rejecting = rejectingOf(live, nowMs);
      // Without engines there is nothing to decide and nothing cached.
      setAttribute(document.body, "data-empty", overview !== undefined && engines.length === 0);
      const events = linesOf(fleet.events);
      const facts = {
        isLive,
        hasBeenLive,
        silentSinceMs,
        moved,
        engines,
        routers,
        refused,
        recent,
        waiting,
        rejecting,
      };
      const status = overview?.status ?? readyStatus;
      parts.findings.update(findingsOf({ ...facts, status, events, nowMs }));
      parts.engines.update({ rows: engines, silentSinceMs });
      parts.routers.update({ routers, refused });
      parts.events.update({ lines: events, grafana: source?.grafana ?? null });
      const numbers = new Map(routers.map(({ router, number }) => [router, String(number)]));
      const shortNameOf = (router: string): string => numbers.get(router) ?? "?";
      const lostMsOf = (name: string): number | undefined =>
        routers.find(({ router }) => router === name)?.lost?.sinceMs ??
        // The event is there before the row: the mesh lists a member that is down for some seconds.
        events.find(({ kind, subjects }) => kind === "router_lost" && subjects.includes(name))?.atMs;
      // Engines get their colours in the order of the fleet, which must be known before decisions are shown.
      if (overview) parts.decisions.update({ decisions, skipped });
      // A router of which only the page has not heard for a while is not down.
      const gone = new Set(routers.filter(isGone).map(({ router }) => router));
      const down = takeovers.filter(({ router }) => gone.has(router));
      if (overview) parts.sessions.update({ sessions, takeovers: down, shortNameOf, lostMsOf });
      const unknown = cachesUnknown(silentSinceMs, engines);
      parts.prefixes.update({ rows: unknown === undefined ? rows : [], path, engines, sessions, unknown });
      parts.detail.update({ address, engines, decisions, prefixes: rows, sessions, programs, silentSinceMs });
      parts.queues.update({ queues, silentSinceMs });
    },
  };
}

/** Makes the lines of the log anew only when a router has sent events. */
function rememberLines(): typeof eventLines {
  let latest: readonly (readonly FleetEvent[])[] = [];
  let lines: ReturnType<typeof eventLines> = [];
  return (events) => {
    if (events.length === latest.length && events.every((each, at) => each === latest[at])) return lines;
    latest = events;
    lines = eventLines(events);
    return lines;
  };
}

/** What was cached on engines that are down cannot be used. */
function cachesUnknown(silentSinceMs: number | undefined, engines: readonly EngineRow[]): string | undefined {
  if (silentSinceMs !== undefined) return sinceText(silentSinceMs);
  return engines.length > 0 && engines.every(isAbsent) ? "all engines are down" : undefined;
}

/** Before a router has said anything. */
const readyStatus: RouterStatus = { ready: true, reasons: [], draining: false, reload: null };

function byId(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no ${id}`);
  return found;
}

interface BarState {
  /** The router that is read; undefined while none answers. */
  readonly source: string | undefined;
  readonly isLive: boolean;
  readonly hasBeenLive: boolean;
  readonly policy: string;
  readonly models: readonly string[];
  /** Undefined for the overview. */
  readonly view: DetailAddress["kind"] | undefined;
}

/** The top of the page: its views, its source, and whether that is live. */
function createBar(node: HTMLElement): Part<BarState> {
  const light = element("span", { class: "light", "aria-hidden": "true" });
  const text = element("span", { id: "live" });
  const about = element("span", { class: "about" });
  const overview = element("a", { href: "#" }, "Overview");
  const programs = element("a", { href: programsLink }, "Programs");
  node.append(
    element("h1", {}, logo(), "Espalier"),
    element("nav", { "aria-label": "Views" }, overview, programs),
    about,
    element("p", { class: "live", role: "status" }, light, text),
    createThemeButton(),
  );
  return {
    node,
    update({ source, isLive, hasBeenLive, policy, models, view }) {
      setAttribute(overview, "aria-current", view === undefined || view === "prefix" ? "page" : false);
      setAttribute(programs, "aria-current", view === "programs" ? "page" : false);
      setAttribute(node, "data-live", isLive ? "yes" : "no");
      setText(text, isLive ? `live from ${source ?? "?"}` : hasBeenLive ? "no router answers" : "connecting …");
      setText(about, [models.slice(0, 3).join(", "), policy].filter(Boolean).join(" · "));
    },
  };
}

function logo(): Element {
  const space = "http://www.w3.org/2000/svg";
  const picture = document.createElementNS(space, "svg");
  for (const [name, value] of [
    ["viewBox", "0 0 32 32"],
    ["aria-hidden", "true"],
    ["class", "logo"],
  ] as const) {
    picture.setAttribute(name, value);
  }
  const path = document.createElementNS(space, "path");
  path.setAttribute("d", "M16 29V4M16 25H8q-3 0-3-3V6M16 25h8q3 0 3-3V6M16 17h-5M16 17h5");
  picture.append(path);
  return picture;
}

/// <reference lib="dom" />

const themes = ["auto", "light", "dark"] as const;

type Theme = (typeof themes)[number];

const themeStorageKey = "espalier-theme";
const labels: Readonly<Record<Theme, string>> = { auto: "Auto", light: "Light", dark: "Dark" };

/** A button that cycles through the themes: that of the system, light, dark. The choice is stored. */
function createThemeButton(): HTMLButtonElement {
  let theme = themes.find((name) => name === localStorage.getItem(themeStorageKey)) ?? "auto";
  const button = element("button", { type: "button", class: "theme", title: "Light, dark, or the system's theme" });
  const show = (): void => {
    const root = document.documentElement;
    setAttribute(root, "data-theme", theme === "auto" ? false : theme);
    setText(button, labels[theme]);
    setAttribute(button, "aria-label", `Theme: ${labels[theme]}`);
    root.dispatchEvent(new Event("themechange"));
  };
  button.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length] ?? "auto";
    localStorage.setItem(themeStorageKey, theme);
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
  return button;
}
