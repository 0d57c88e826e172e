import { detailLink, programsLink } from "../model/detail-address.ts";
import { formatTime } from "../model/format.ts";
import {
  latestTrails,
  type Sessions,
  type SessionTrail,
  type Takeover,
  takeoverOutcome,
  takeoverText,
} from "../model/sessions.ts";
import { element, keyedList, type Part, panel, setAttribute, setText } from "./dom.ts";

export interface SessionsState {
  readonly sessions: Sessions;
  readonly takeovers: readonly Takeover[];
  /** A short name of each router. */
  readonly shortNameOf: (router: string) => string;
  /** When the other routers lost it: the time that its row and its event have. */
  readonly lostMsOf: (router: string) => number | undefined;
}

const shownSessions = 28;

/** The steps of sessions, and what became of those whose router is gone. */
export function createSessions(hueOf: (name: string) => string): Part<SessionsState> {
  const takeovers = element("ul", { class: "takeovers", "aria-live": "polite" });
  const list = element("ul", { class: "trails" });
  const legend = element(
    "p",
    { class: "soft legend" },
    "Color: engine. Number: router in the list. Frame: change of engine.",
  );
  const scroll = element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Sessions" });
  scroll.append(takeovers, list);
  const { node, aside } = panel("Sessions", "sessions-panel", scroll, legend);
  const count = element("span");
  aside.append(count, element("a", { href: programsLink }, "All programs"));
  let lostMsOf: SessionsState["lostMsOf"] = () => undefined;
  const showTakeovers = keyedList<Takeover>(
    takeovers,
    ({ router }) => router,
    ({ router }) => createTakeover(router, () => lostMsOf(router)),
  );
  let shortNameOf: SessionsState["shortNameOf"] = (router) => router;
  const showTrails = keyedList<SessionTrail>(
    list,
    ({ session }) => session,
    () => createTrail(hueOf, (router) => shortNameOf(router)),
  );
  return {
    node,
    update(state) {
      ({ shortNameOf, lostMsOf } = state);
      const trails = latestTrails(state.sessions, shownSessions);
      setText(count, state.sessions.size === 0 ? "none yet" : `${trails.length} of ${state.sessions.size}`);
      showTakeovers(state.takeovers);
      showTrails(trails);
    },
  };
}

function createTakeover(router: string, lostMs: () => number | undefined): Part<Takeover> {
  const text = element("span");
  const strong = element("strong");
  const node = element("li", {}, strong, text);
  return {
    node,
    update(takeover) {
      const atMs = lostMs();
      setText(strong, `${router} went down${atMs === undefined ? "" : ` at ${formatTime(atMs)}`}. `);
      setAttribute(node, "data-outcome", takeoverOutcome(takeover));
      setText(text, takeoverText(takeover));
    },
  };
}

function createTrail(hueOf: (name: string) => string, shortNameOf: (router: string) => string): Part<SessionTrail> {
  const name = element("a", { class: "soft session" });
  const steps = element("ol", { class: "steps" });
  const show = keyedList<SessionTrail["steps"][number]>(
    steps,
    ({ atMs, target, router }) => `${atMs} ${target} ${router}`,
    ({ router, target, hasChangedTarget }) => {
      const changed = hasChangedTarget ? " switched" : "";
      const text = `${target} via ${router}`;
      const node = element("li", { class: `step ${hueOf(target)}${changed}`, title: text }, shortNameOf(router));
      return { node, update() {} };
    },
  );
  return {
    node: element("li", {}, name, steps),
    update({ session, steps: now }) {
      setText(name, session);
      setAttribute(name, "href", detailLink("programs", session));
      show(now);
    },
  };
}
