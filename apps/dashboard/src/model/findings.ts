import { placeLink } from "./detail-address.ts";
import type { EventLine } from "./events.ts";
import { formatAge, formatCount, formatMs, formatTime } from "./format.ts";
import type { Recent } from "./history.ts";
import type { RefusedLink, RouterStatus } from "./overview.ts";
import { type EngineRow, isAbsent, isGone, isUnresponsive, notProbed, type RouterRow } from "./rows.ts";

/** What the rules look at. */
export interface FleetFacts {
  /** Whether any router answers now, and whether one ever did. */
  readonly isLive: boolean;
  readonly hasBeenLive: boolean;
  /** Since when no router answers; undefined while one does. */
  readonly silentSinceMs: number | undefined;
  /** The last change of the router that the page reads from. */
  readonly moved: { readonly from: string; readonly to: string; readonly atMs: number } | undefined;
  /** Of the router that is read. */
  readonly status: RouterStatus;
  readonly engines: readonly EngineRow[];
  readonly routers: readonly RouterRow[];
  readonly refused: readonly RefusedLink[];
  readonly recent: Recent;
  readonly waiting: number;
  /** Classes whose queues have rejected requests in the last minute. */
  readonly rejecting: readonly string[];
  /** The log of events, newest first. */
  readonly events: readonly EventLine[];
  readonly nowMs: number;
}

/** `alarm`: requests suffer; `warn`: they will, or redundancy is lost; `note`: somebody did it, or may want to know. */
type Level = "alarm" | "warn" | "note" | "quiet";

export interface Finding {
  readonly rule: string;
  readonly level: Level;
  /** What is wrong. */
  readonly sentence: string;
  /** What to do; commands are in backticks. */
  readonly next: string;
  /** Where the page shows more of it. */
  readonly links: readonly FindingLink[];
}

interface FindingLink {
  readonly text: string;
  readonly href: string;
}

/** Where a finding comes from: rows of the page, and kinds of events about them. */
interface Origins {
  readonly engines?: readonly EngineRow[];
  readonly routers?: readonly string[];
  readonly events?: readonly string[];
  /** Links to whole panels. */
  readonly panels?: readonly FindingLink[];
}

interface Rule<Found> {
  readonly name: string;
  /** What it applies to; with nothing found, nothing is wrong. */
  readonly finds: (facts: FleetFacts) => readonly Found[];
  readonly level: Level | ((found: readonly Found[], facts: FleetFacts) => Level);
  readonly says: (found: readonly Found[], facts: FleetFacts) => string;
  readonly next: (found: readonly Found[], facts: FleetFacts) => string;
  readonly origins?: (found: readonly Found[], facts: FleetFacts) => Origins;
}

const rule =
  <Found>({ name, finds, level, says, next, origins }: Rule<Found>) =>
  (facts: FleetFacts): readonly Finding[] => {
    const found = finds(facts);
    if (found.length === 0) return [];
    const how = typeof level === "string" ? level : level(found, facts);
    const links = linksTo(origins?.(found, facts) ?? {}, facts);
    return [{ rule: name, level: how, sentence: says(found, facts), next: next(found, facts), links }];
  };

const enginesPanel: FindingLink = { text: "Show engines", href: "#panel-engines" };
const routersPanel: FindingLink = { text: "Show routers", href: "#panel-routers" };
const queuesPanel: FindingLink = { text: "Show queues", href: "#panel-queues" };

/** One row, or the panel with all of them; and the newest event about one of them. */
function linksTo({ engines = [], routers = [], events = [], panels = [] }: Origins, facts: FleetFacts) {
  const [engine, ...otherEngines] = engines;
  const [router, ...otherRouters] = routers;
  const subjects = [...engines.map(({ engine: id }) => id), ...routers];
  const event = facts.events.find(
    (line) => events.includes(line.kind) && line.subjects.some((subject) => subjects.includes(subject)),
  );
  const links: FindingLink[] = [...panels];
  if (engine)
    links.push(otherEngines.length > 0 ? enginesPanel : { text: "Show engine", href: placeLink("engine", engine.key) });
  if (router !== undefined)
    links.push(otherRouters.length > 0 ? routersPanel : { text: "Show router", href: placeLink("router", router) });
  if (event) links.push({ text: "Show event", href: placeLink("event", event.key) });
  return links;
}

/** Events by which engines stop to accept requests. */
const engineEnds = [
  ...(["engine_down", "engine_unreachable", "circuit_open", "engine_draining", "engine_asleep"] as const),
  "engine_paused",
] as const;

const when = (holds: boolean): readonly true[] => (holds ? [true] : []);
const isUp = ({ health }: EngineRow): boolean => health === "up";
/** How long a change of the source is told. */
const movedMs = 60_000;
/** Refusals are repeated as long as the other router tries. */
const refusedMs = 120_000;
/** Failed requests are an alarm from this share of all on. */
const alarmShare = 0.01;
/** More than this share of answers that miss their objectives is reported, of so many requests at least. */
const lateShare = 0.1;
const leastMeasured = 20;
/** Requests that were answered, but missed their objectives. */
const late = ({ missed, failed, cut, refused }: Recent): number => Math.max(0, missed - failed - cut - refused);

/** Requests that no engine took. */
const unavailable = ({ refused, limited }: Recent): number => Math.max(0, refused - limited);

const failingEngines = (engines: readonly EngineRow[]): readonly EngineRow[] =>
  engines.filter((engine) => isAbsent(engine) || engine.health === "open");
const enginesOf = (models: readonly string[], engines: readonly EngineRow[]): readonly EngineRow[] =>
  engines.filter((engine) => engine.models.some((id) => models.includes(id)));
const lateEngines = (engines: readonly EngineRow[]): readonly EngineRow[] => [
  ...unresponsiveEngines(engines),
  ...slowEngines(engines),
];
const unresponsiveEngines = (engines: readonly EngineRow[]): readonly EngineRow[] => engines.filter(isUnresponsive);
const slowEngines = (engines: readonly EngineRow[]): readonly EngineRow[] =>
  engines.filter((row) => isUp(row) && row.slow !== null && row.unresponsiveSinceMs === null);

const refusals: Readonly<Record<string, { readonly says: string; readonly next: string }>> = {
  secret: { says: "its mesh secret differs", next: "Give all routers the same `mesh.secret`." },
  "protocol-version": { says: "its protocol version differs", next: "Upgrade the older router." },
  "cluster-name": { says: "its cluster name differs", next: "Set the same `mesh.cluster`, or correct its seeds." },
  "fleet-seed": { says: "its prefix seed differs", next: "Give all routers the same `prefix.seed`." },
  "block-size": { says: "its block size differs", next: "Give all routers the same `prefix.block-size`." },
  "router-id-taken": { says: "another router has its id", next: "Set a unique `mesh.router-id`." },
  "epoch-behind": { says: "a later process with its id is known", next: "Stop the older process with this id." },
  "too-many-peers": { says: "the mesh is full", next: "Run fewer routers; see docs/LIMITS.md." },
};

/** Why a router was refused, in words. */
export const refusalText = (reason: string): string => refusals[reason]?.says ?? reason.replaceAll("-", " ");

/** What may be wrong, the worst first. */
const rules = [
  rule({
    name: "no_router",
    finds: ({ isLive, hasBeenLive }) => when(!isLive && hasBeenLive),
    level: "alarm",
    says: (_, { silentSinceMs }) =>
      `No router answers${silentSinceMs === undefined ? "" : ` since ${formatTime(silentSinceMs)}`}. The page shows the last known state and keeps trying.`,
    next: () => "Check that the routers run, and that their admin port can be reached from here.",
  }),
  rule({
    name: "no_engine",
    finds: ({ isLive, engines }) => when(isLive && engines.length === 0),
    level: "alarm",
    says: () => "No engine is configured or discovered: requests get 503.",
    next: () => "Add one with `espalier engines add URL`, or check `engines` and `discovery` in the configuration.",
  }),
  rule({
    name: "no_usable_engine",
    finds: ({ isLive, engines }) => (isLive && !engines.some(isUp) ? engines : []),
    level: "alarm",
    says: (found) => `No engine accepts requests: ${countStates(found)}.`,
    next: (found) => nextForEngines(found),
    origins: (engines) => ({ engines, events: engineEnds }),
  }),
  rule({
    name: "model_without_engine",
    finds: ({ isLive, engines }) => (isLive && engines.some(isUp) ? modelsWithoutEngine(engines) : []),
    level: "alarm",
    says: (found) => `No running engine serves ${few(found, "models")}.`,
    next: (found, { engines }) => nextForEngines(enginesOf(found, engines)),
    origins: (found, { engines }) => ({ engines: enginesOf(found, engines), events: engineEnds }),
  }),
  rule({
    name: "failed_requests",
    finds: ({ isLive, recent }) => when(isLive && recent.failed + recent.cut > 0),
    level: (_, { recent }) => (recent.failed + recent.cut >= recent.requests * alarmShare ? "alarm" : "warn"),
    says: (_, { recent }) => `${failures(recent)} in the last minute.`,
    next: (_, { engines }) =>
      startWith(failingEngines(engines)) ??
      "Explain one with `espalier explain --request-id ID` and read the engine's log.",
    origins: (_, { engines }) => ({ engines: failingEngines(engines), events: engineEnds }),
  }),
  rule({
    name: "reads_elsewhere",
    // One that was only slow, or is back, is not gone.
    finds: ({ isLive, moved, routers, nowMs }) =>
      isLive &&
      moved &&
      nowMs - moved.atMs <= movedMs &&
      routers.some((row) => row.router === moved.from && isGone(row))
        ? [moved]
        : [],
    level: "warn",
    // Its row and its event have the time at which the other routers lost it, and the page another one at which it noticed.
    says: ([moved], { routers }) => {
      const lost = routers.find(({ router }) => router === moved!.from)?.lost;
      return `${moved!.from} is gone${lost ? ` since ${formatTime(lost.sinceMs)}` : ""}: reading from ${moved!.to}.`;
    },
    next: ([moved]) => `Restart ${moved!.from}. The other routers serve its clients.`,
    origins: ([moved]) => ({ routers: [moved!.from], events: ["router_lost", "router_left"] }),
  }),
  rule({
    name: "engines_down",
    finds: ({ isLive, engines }) => (isLive && engines.some(isUp) ? engines.filter(isAbsent) : []),
    level: (found, { engines }) => (2 * found.length >= engines.length ? "alarm" : "warn"),
    says: (found, { engines }) => `${whichEngines(found, engines, "down")}: ${reasonsOf(found)}.`,
    next: (found) => `${nextForEngines(found)} Requests go to the others.`,
    origins: (engines) => ({ engines, events: ["engine_down", "engine_unreachable"] }),
  }),
  rule({
    name: "unresponsive_engines",
    finds: ({ isLive, engines }) => (isLive ? unresponsiveEngines(engines) : []),
    level: "warn",
    says: (found, { engines, nowMs }) =>
      `${whichEngines(found, engines, "unresponsive")}: requests wait there, and nothing has come since ${sinceText(unresponsiveSince(found), nowMs)}, although health checks succeed.`,
    next: (found) =>
      `Restart ${found.length === 1 ? `it, or drain it with \`espalier engines drain ${found[0]!.key}\`` : "them"}. When its connections break, waiting requests go to the others.`,
    origins: (engines) => ({ engines, events: ["circuit_open"] }),
  }),
  rule({
    name: "slow_engines",
    finds: ({ isLive, engines }) => (isLive ? slowEngines(engines) : []),
    level: "warn",
    says: (found, { engines }) => `${whichEngines(found, engines, "slow")}: ${slownessOf(found[0]!)}.`,
    next: ([first]) =>
      `Compare its GPU, its log and its queue with the others', or drain it with \`espalier engines drain ${first!.key}\`.`,
    origins: (engines) => ({ engines }),
  }),
  rule({
    name: "circuit_open",
    finds: ({ isLive, engines }) =>
      isLive && engines.some(isUp) ? engines.filter((row) => row.health === "open" && !isUnresponsive(row)) : [],
    level: "warn",
    says: (found, { engines }) => `${whichEngines(found, engines, "failing requests")}: ${reasonsOf(found)}.`,
    next: () => "Read its log. The engine gets one request at a time until it recovers.",
    origins: (engines) => ({ engines, events: ["circuit_open"] }),
  }),
  rule({
    name: "unavailable_requests",
    finds: ({ isLive, recent }) => when(isLive && unavailable(recent) > 0),
    level: "warn",
    says: (_, { recent }) =>
      `${formatCount(unavailable(recent))} of ${count(recent.requests, "request")} got 503 in the last minute: no engine took them.`,
    next: (_, { engines }) =>
      startWith(
        engines.filter((engine) => !isUp(engine)),
        "engines that accept no requests",
      ) ??
      "All engines are up: the error code of the answers gives the reason (docs/ERRORS.md). If an engine answers 503 itself, read its log.",
    origins: (_, { engines }) => ({ engines: engines.filter((engine) => !isUp(engine)), events: engineEnds }),
  }),
  rule({
    name: "limited_requests",
    finds: ({ isLive, recent }) => when(isLive && recent.limited > 0),
    level: "warn",
    says: (_, { recent }) =>
      `${formatCount(recent.limited)} of ${count(recent.requests, "request")} got 429 in the last minute: a limit was reached.`,
    next: (_, { rejecting }) =>
      rejecting.length > 0
        ? `The queue of ${few(rejecting, "classes")} rejects requests: add engines, or reduce load.`
        : "No queue rejects requests now: the router's `limits` or an engine does. Raise `limits` if engines have room, and read the engines' logs.",
    origins: (_, { rejecting }) => ({ panels: rejecting.length > 0 ? [queuesPanel] : [] }),
  }),
  rule({
    name: "missed_objectives",
    finds: ({ isLive, recent }) =>
      when(
        isLive &&
          recent.met + recent.missed >= leastMeasured &&
          late(recent) > lateShare * (recent.met + recent.missed),
      ),
    level: "note",
    says: (_, { recent }) =>
      `${formatCount(late(recent))} of ${count(recent.met + recent.missed, "request")} missed their objectives in the last minute: late first tokens or slow output.`,
    next: (_, { engines }) =>
      startWith(lateEngines(engines), "unresponsive or slow engines") ??
      "The `result` label of `espalier_slo_requests_total` says which objective was missed. Add engines or adjust `slo`.",
    origins: (_, { engines }) => ({ engines: lateEngines(engines) }),
  }),
  rule({
    name: "lost_routers",
    finds: ({ isLive, moved, nowMs, routers }) =>
      isLive
        ? routers.filter((row) => isGone(row) && !(moved?.from === row.router && nowMs - moved.atMs <= movedMs))
        : [],
    level: "warn",
    says: (found) =>
      found.length === 1 && found[0]!.lost
        ? `${found[0]!.router} is gone since ${formatTime(found[0]!.lost.sinceMs)}.`
        : `${few(
            found.map(({ router }) => router),
            "routers",
          )} ${found.length === 1 ? "is" : "are"} gone.`,
    next: (found) =>
      `Restart ${found.length === 1 ? "it" : "them"}, or check the network to the mesh port. The other routers serve its sessions and read its feeds.`,
    origins: (found) => ({ routers: found.map(({ router }) => router), events: ["router_lost"] }),
  }),
  rule({
    name: "not_ready",
    finds: ({ isLive, engines, routers }) =>
      isLive && engines.some(isUp)
        ? routers.filter(({ reasons, state }) => reasons.length > 0 && state !== "draining")
        : [],
    level: "warn",
    says: (found) =>
      `${few(
        found.map(({ router }) => router),
        "routers",
      )} ${found.length === 1 ? "is" : "are"} not ready: ${found[0]!.reasons.join("; ")}.`,
    next: () => "Load balancers skip it until `/readyz` returns 200.",
    origins: (found) => ({ routers: found.map(({ router }) => router) }),
  }),
  rule({
    name: "refused_routers",
    finds: ({ isLive, refused, nowMs }) => (isLive ? refused.filter(({ lastMs }) => nowMs - lastMs < refusedMs) : []),
    level: "warn",
    says: (found) =>
      `A router at ${few([...new Set(found.map(({ address }) => address))], "addresses")} is refused: ${refusalText(found[0]!.reason)}.`,
    next: ([first]) => refusals[first!.reason]?.next ?? first!.detail,
    origins: () => ({ panels: [routersPanel] }),
  }),
  rule({
    name: "differing_routers",
    finds: ({ isLive, routers }) =>
      isLive ? routers.filter(({ differs, lost, state }) => differs.length > 0 && !lost && state !== "gone") : [],
    level: "warn",
    says: (found) =>
      `${few(
        found.map(({ router }) => router),
        "routers",
      )} ${found.length === 1 ? "differs" : "differ"} in ${few([...new Set(found.flatMap(({ differs }) => differs))], "settings")}.`,
    next: (found) =>
      found.every(({ differs }) => differs.join() === "version")
        ? "Finish the upgrade."
        : "Give all routers the same configuration file, and reload them with `espalier reload`.",
    origins: (found) => ({ routers: found.map(({ router }) => router) }),
  }),
  rule({
    name: "reload_failed",
    finds: ({ isLive, status }) => (isLive && status.reload?.error ? [status.reload] : []),
    level: "warn",
    says: ([reload]) =>
      `The reload at ${formatTime(reload!.atMs)} failed; the previous configuration stays active: ${reload!.error}`,
    next: () => "Check the file with `espalier check-config --config FILE`.",
    origins: (_, { routers }) => ({
      ...{ routers: routers.flatMap(({ router, isSource }) => (isSource ? [router] : [])), events: ["reload_failed"] },
    }),
  }),
  rule({
    name: "restart_needed",
    finds: ({ isLive, status }) => (isLive ? (status.reload?.needsRestart ?? []) : []),
    level: "note",
    says: (found) => `${few(found, "settings")} ${found.length === 1 ? "waits" : "wait"} for a restart.`,
    next: () => "Restart the routers, one after the other.",
  }),
  rule({
    name: "draining_routers",
    finds: ({ isLive, routers }) => (isLive ? routers.filter(({ state }) => state === "draining") : []),
    level: "note",
    says: (found) =>
      `${few(
        found.map(({ router }) => router),
        "routers",
      )} ${found.length === 1 ? "is" : "are"} draining.`,
    next: () => "After a deliberate stop, no action is needed: the router exits after its last answer.",
    origins: (found) => ({ routers: found.map(({ router }) => router), events: ["router_draining"] }),
  }),
  rule({
    name: "starting_engines",
    finds: ({ isLive, engines }) =>
      isLive && engines.some(isUp)
        ? engines.filter(({ health, note }) => health === "starting" && note !== notProbed)
        : [],
    level: "note",
    says: (found, { engines }) => `${whichEngines(found, engines, "not up yet")}: ${reasonsOf(found)}.`,
    next: () => "Wait while it loads its model. If it never comes up, check its address and its log.",
    origins: (engines) => ({ engines }),
  }),
  rule({
    name: "idle_engines",
    finds: ({ isLive, engines }) =>
      isLive && engines.some(isUp)
        ? engines.filter(({ health }) => ["draining", "paused", "asleep"].includes(health))
        : [],
    level: "note",
    says: (found) =>
      `${few(
        found.map(({ key }) => key),
        "engines",
      )} ${found.length === 1 ? "accepts" : "accept"} no requests: ${countStates(found)}.`,
    next: (found) => nextForEngines(found),
    origins: (engines) => ({ engines, events: engineEnds }),
  }),
  rule({
    name: "waiting_requests",
    finds: ({ isLive, waiting, engines }) => when(isLive && waiting >= 1 && engines.some(isUp)),
    level: "note",
    says: (_, { waiting }) =>
      `${count(Math.round(waiting), "request")} ${Math.round(waiting) === 1 ? "waits" : "wait"} for an engine.`,
    next: () => "The engines are saturated. Add engines if the queue persists.",
    origins: () => ({ panels: [queuesPanel] }),
  }),
];

/** What is wrong, the worst first; with nothing wrong, one quiet finding. */
export function findingsOf(facts: FleetFacts): readonly Finding[] {
  const order: readonly Level[] = ["alarm", "warn", "note"];
  const found = rules.flatMap((find) => find(facts));
  if (found.length === 0) return [quiet(facts)];
  return found.sort((one, other) => order.indexOf(one.level) - order.indexOf(other.level));
}

function quiet({ isLive, engines, routers, recent }: FleetFacts): Finding {
  const rest = { rule: "quiet", level: "quiet", next: "", links: [] } as const;
  if (!isLive) return { ...rest, sentence: "Connecting …" };
  const requests =
    recent.requests === 0 ? "No request in the last minute" : "Every request of the last minute was answered";
  const fleet = `${count(engines.length, "engine")} and ${count(routers.length, "router")} up`;
  return { ...rest, sentence: `${requests}; ${fleet}.` };
}

function modelsWithoutEngine(engines: readonly EngineRow[]): readonly string[] {
  const models = new Set(engines.flatMap((engine) => engine.models));
  for (const engine of engines) if (isUp(engine)) for (const model of engine.models) models.delete(model);
  return [...models];
}

/** What to do about engines, by the state that most of them are in. */
function nextForEngines(engines: readonly EngineRow[]): string {
  const [[state] = ["down"]] = tally(engines);
  if (state === "draining") return "Undrain them with `espalier engines undrain ID` after maintenance.";
  if (state === "paused") return "The RL framework that paused them resumes them, as with `/continue_generation`.";
  if (state === "asleep") return "Wake them up (vLLM: `POST /wake_up`), or remove them.";
  if (state === "starting") return "Wait for the first health check; a failure shows its reason.";
  if (state === "unreachable") return "Check the address, and that the engine runs and listens there.";
  if (state === "open") return "Read the engine's log. The engine gets one request at a time until it recovers.";
  return engines.length === 1 ? "Restart the engine, and read its log." : "Restart the engines, and read their logs.";
}

/** `2 down, 1 draining` */
function countStates(engines: readonly EngineRow[]): string {
  return tally(engines)
    .map(([state, rows]) => `${rows} ${state === "open" ? "with an open circuit" : state}`)
    .join(", ");
}

function tally(engines: readonly EngineRow[]): [EngineRow["health"], number][] {
  const counts = new Map<EngineRow["health"], number>();
  for (const { health } of engines) counts.set(health, (counts.get(health) ?? 0) + 1);
  return [...counts].sort(([, one], [, other]) => other - one);
}

function whichEngines(found: readonly EngineRow[], all: readonly EngineRow[], what: string): string {
  if (found.length === 1) return `${found[0]!.key} is ${what}`;
  return `${found.length} of ${all.length} engines are ${what}`;
}

/** Since when the first of them is unresponsive. */
const unresponsiveSince = (engines: readonly EngineRow[]): number =>
  Math.min(...engines.map(({ unresponsiveSinceMs }) => unresponsiveSinceMs ?? Number.POSITIVE_INFINITY));

/** `14:03:59 (34 s ago)` */
const sinceText = (sinceMs: number, nowMs: number): string => `${formatTime(sinceMs)} (${formatAge(nowMs - sinceMs)})`;

/** @returns undefined where there is none to start with */
function startWith(engines: readonly EngineRow[], nouns = "engines that are down"): string | undefined {
  if (engines.length === 0) return undefined;
  return `Start with ${few(
    engines.map(({ key }) => key),
    nouns,
  )}.`;
}

function slownessOf({ slow }: EngineRow): string {
  const { measure = "", ms = 0, othersMs = 0 } = slow ?? {};
  return measure === "tpot"
    ? `${formatMs(ms)} per output token in the last minute, ${formatMs(othersMs)} at the others`
    : `first tokens after ${formatMs(ms)} in the last minute, ${formatMs(othersMs)} at the others`;
}

/** The reason that most of them have. */
function reasonsOf(engines: readonly EngineRow[]): string {
  const counts = new Map<string, number>();
  for (const { note } of engines) counts.set(note, (counts.get(note) ?? 0) + 1);
  const [[note, share] = ["", 0]] = [...counts].sort(([, one], [, other]) => other - one);
  return share === engines.length ? note : `${note} (${share} of them)`;
}

/** `3 of 332 requests failed and 2 were cut off` */
function failures({ failed, cut, requests }: Recent): string {
  const [first, second] = [
    ...(failed > 0 ? [[failed, "failed"] as const] : []),
    ...(cut > 0 ? [[cut, `${cut === 1 ? "was" : "were"} cut off`] as const] : []),
  ];
  const [number = 0, verb = ""] = first ?? [];
  const also = second ? ` and ${formatCount(second[0])} ${second[1]}` : "";
  return `${formatCount(number)} of ${count(requests, "request")} ${verb}${also}`;
}

function count(value: number, noun: string): string {
  return `${formatCount(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** At most two names, else how many there are. */
function few(names: readonly string[], nouns: string): string {
  return names.length > 2 ? `${names.length} ${nouns}` : names.join(" and ");
}
