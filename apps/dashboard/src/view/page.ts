import type { FleetState } from "../follow/fleet-follower.ts";
import type { DetailAddress } from "../model/detail-address.ts";
import type { Series } from "../model/history.ts";
import type { PathStep } from "../model/prefix-tree.ts";
import type { PrefixRow } from "../model/prefixes.ts";
import { concernsOf, countAlive, countHealthy, engineRows, noticeText, queueRows, routerRows } from "../model/rows.ts";
import { createDecisions } from "./decisions.ts";
import { createDetail, type Questions } from "./detail.ts";
import { createHues, element, type Part, setAttribute, setText } from "./dom.ts";
import { createPlots } from "./plots.ts";
import { createPrefixTree } from "./prefix-tree.ts";
import { createSessions } from "./sessions.ts";
import { createEngines, createQueues, createRouters } from "./tables.ts";
import { createTiles } from "./tiles.ts";

/// <reference lib="dom" />

interface PageState {
  readonly fleet: FleetState;
  readonly prefixes: readonly PrefixRow[];
  /** The way to the prefix whose branches these are. */
  readonly path: readonly PathStep[];
  /** Undefined while the overview is shown. */
  readonly address: DetailAddress | undefined;
  /** Milliseconds since the Unix epoch. */
  readonly nowMs: number;
}

/** Everything below `body`. */
export function createPage(ask: Questions) {
  const hueOf = createHues();
  const [bar, notice, main] = [byId("bar"), byId("notice"), byId("main")];
  const parts = {
    bar: createBar(bar),
    tiles: createTiles(),
    plots: createPlots(),
    engines: createEngines(hueOf),
    routers: createRouters(),
    decisions: createDecisions(hueOf),
    sessions: createSessions(hueOf),
    prefixes: createPrefixTree(hueOf),
    queues: createQueues(),
    detail: createDetail(hueOf, ask),
  };
  const { bar: _, ...inMain } = parts;
  main.replaceChildren(...Object.values(inMain).map(({ node }) => node));
  let hasBeenLive = false;
  return {
    /** Once a second: it is drawn anew. */
    updatePlots: (series: Series): void => parts.plots.update(series),
    update({ fleet, prefixes, path, address, nowMs }: PageState): void {
      const { source, overview, decisions, skipped, sessions, takeovers, followed, live, rates, moved } = fleet;
      const isLive = source?.isLive === true;
      hasBeenLive ||= isLive;
      const engines = overview ? engineRows(overview) : [];
      const routers = routerRows(overview?.links, followed, isLive ? source.router : undefined);
      const refused = overview?.links.refused ?? [];
      const concerns = concernsOf(routers, engines, refused.length);
      const queues = live.map(({ queues }) => queues);
      for (const { key } of engines) hueOf(key);
      parts.bar.update({
        ...{ source: source?.router, isLive, policy: decisions[0]?.policy ?? "" },
        models: [...new Set(overview?.engines.flatMap(({ models }) => models) ?? [])],
      });
      setText(notice, noticeText({ moved, isLive, hasBeenLive, nowMs, concerns }));
      parts.tiles.update({
        ...{ isLive, rates, engines: countHealthy(engines) },
        inFlight: engines.reduce((sum, { inFlight }) => sum + inFlight, 0),
        queued: queueRows(queues).reduce((sum, { queued }) => sum + queued, 0),
        routers: countAlive(routers),
        blocks: engines.reduce((sum, { blocks }) => sum + blocks, 0),
      });
      parts.engines.update(engines);
      parts.routers.update({ routers, refused });
      // Engines get their colours in the order of the fleet, which must be known before decisions are shown.
      if (overview) parts.decisions.update({ decisions, skipped });
      if (overview) parts.sessions.update({ sessions, takeovers, shortNameOf });
      parts.prefixes.update({ rows: prefixes, path });
      parts.detail.update({ address, engines, decisions, prefixes });
      parts.queues.update(queues);
    },
  };
}

function byId(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no ${id}`);
  return found;
}

/** A short name of a router: the number at its end, or its first letter. */
function shortNameOf(router: string): string {
  return /\d{1,2}$/.exec(router)?.[0] ?? router.slice(0, 1).toUpperCase();
}

interface BarState {
  /** The router that is read; undefined while none answers. */
  readonly source: string | undefined;
  readonly isLive: boolean;
  readonly policy: string;
  readonly models: readonly string[];
}

/** The top of the page: its source, and whether that is live. */
function createBar(node: HTMLElement): Part<BarState> {
  const light = element("span", { class: "light", "aria-hidden": "true" });
  const text = element("span", { id: "live" });
  const about = element("span", { class: "about" });
  node.append(
    element("h1", {}, logo(), "Espalier"),
    about,
    element("p", { class: "live", role: "status" }, light, text),
    createThemeButton(),
  );
  return {
    node,
    update({ source, isLive, policy, models }) {
      setAttribute(node, "data-live", isLive ? "yes" : "no");
      setText(
        text,
        isLive ? `live from ${source ?? "?"}` : source === undefined ? "connecting …" : "no router answers",
      );
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
