import { asNumber, asText, listOf, objectOf } from "./read-json.ts";

/** What happened to an engine or a router, as one router saw it. */
export type FleetEvent = ReturnType<typeof readEvent>;

const readEvent = objectOf({ atMs: asNumber, kind: asText, subject: asText, detail: asText });

export const readEvents = listOf(readEvent);

/** Events of a router that are kept: as many as it has itself. */
export const maxEvents = 512;

/** Adds events that a router answered with; it may send some of them twice. */
export function addEvents(known: readonly FleetEvent[], more: readonly FleetEvent[], oldestMs: number) {
  const keys = new Set(known.map(keyOf));
  const fresh = more.filter((event) => !keys.has(keyOf(event)));
  return [...known, ...fresh].filter(({ atMs }) => atMs > oldestMs).slice(-maxEvents);
}

const keyOf = ({ atMs, kind, subject }: FleetEvent): string => `${atMs} ${kind} ${subject}`;

type Level = "bad" | "warn" | "good" | "plain";

/** What is said of one subject, and of several at once. */
const kinds: Readonly<Record<string, { readonly level: Level; readonly one: string; readonly many: string }>> = {
  engine_up: { level: "good", one: "is up", many: "engines are up" },
  engine_down: { level: "bad", one: "is down", many: "engines are down" },
  engine_unreachable: { level: "bad", one: "cannot be reached", many: "engines cannot be reached" },
  engine_removed: { level: "plain", one: "was removed", many: "engines were removed" },
  engine_draining: { level: "warn", one: "is draining", many: "engines are draining" },
  engine_undrained: { level: "good", one: "accepts requests again", many: "engines accept requests again" },
  engine_restarted: { level: "warn", one: "restarted: cache empty", many: "engines restarted" },
  engine_asleep: { level: "warn", one: "is asleep", many: "engines are asleep" },
  engine_awake: { level: "good", one: "is awake", many: "engines are awake" },
  engine_paused: { level: "plain", one: "is paused", many: "engines are paused" },
  engine_resumed: { level: "plain", one: "is resumed", many: "engines are resumed" },
  circuit_open: { level: "bad", one: "fails requests: circuit open", many: "engines fail requests: circuit open" },
  circuit_closed: { level: "good", one: "answers again: circuit closed", many: "engines answer again: circuit closed" },
  feed_taken_over: {
    level: "plain",
    one: "KV event feed taken over",
    many: "KV event feeds taken over",
  },
  router_started: { level: "plain", one: "started", many: "routers started" },
  router_joined: { level: "good", one: "joined", many: "routers joined" },
  router_restarted: { level: "warn", one: "restarted", many: "routers restarted" },
  router_draining: { level: "warn", one: "is draining", many: "routers are draining" },
  router_left: { level: "plain", one: "left", many: "routers left" },
  router_lost: { level: "bad", one: "was lost", many: "routers were lost" },
  reloaded: { level: "plain", one: "reloaded its configuration", many: "routers reloaded their configuration" },
  reload_failed: { level: "bad", one: "could not reload its configuration", many: "routers could not reload" },
};

/** One line of the list. */
export interface EventLine {
  readonly key: string;
  readonly atMs: number;
  readonly kind: string;
  readonly subjects: readonly string[];
  readonly level: Level;
  readonly text: string;
  /** Every subject, with its detail, for whoever looks closer. */
  readonly more: string;
}

/** Routers see the same with a delay; what happens together is told together. */
const sameMs = 15_000;
const togetherMs = 5_000;
/** Subjects that a line names. */
const shownNames = 3;

/** A router says that it started what others call joining. */
const arrivals: ReadonlySet<string> = new Set(["router_started", "router_joined", "router_restarted"]);

/**
 * Events of all routers, newest first: each once, and the like of a moment in one line.
 *
 * @param routers events of each router, those of the source first: of what several saw, its words count
 */
export function eventLines(routers: readonly (readonly FleetEvent[])[]): readonly EventLine[] {
  const times = new Map<string, number[]>();
  const once = routers.flat().filter(({ kind, subject, atMs }) => {
    const key = `${arrivals.has(kind) ? "arrived" : kind} ${subject}`;
    const known = times.get(key) ?? [];
    if (known.some((time) => Math.abs(time - atMs) < sameMs)) return false;
    times.set(key, [...known, atMs]);
    return true;
  });
  const groups: FleetEvent[][] = [];
  const latest = new Map<string, FleetEvent[]>();
  for (const event of once.sort((one, other) => one.atMs - other.atMs)) {
    const open = latest.get(event.kind);
    if (open && event.atMs - open[0]!.atMs <= togetherMs) {
      open.push(event);
      continue;
    }
    const group = [event];
    groups.push(group);
    latest.set(event.kind, group);
  }
  return groups.reverse().map(lineOf);
}

function lineOf(group: readonly FleetEvent[]): EventLine {
  const [first] = group as readonly [FleetEvent];
  const words = kinds[first.kind] ?? { level: "plain", one: first.kind, many: first.kind };
  const withDetail = ({ subject, detail }: FleetEvent): string => (detail === "" ? subject : `${subject}: ${detail}`);
  const names = group.slice(0, shownNames).map(({ subject }) => subject);
  const rest = group.length - names.length;
  const many = `${group.length} ${words.many}: ${names.join(", ")}${rest > 0 ? ` and ${rest} more` : ""}`;
  const one = `${first.subject} ${words.one}${first.detail === "" ? "" : ` (${first.detail})`}`;
  return {
    key: `${keyOf(first)} ${group.length}`,
    ...{ atMs: first.atMs, kind: first.kind, subjects: group.map(({ subject }) => subject) },
    ...{ level: words.level, text: group.length > 1 ? many : one },
    more: group.map(withDetail).join("\n"),
  };
}
