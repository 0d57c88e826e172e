import type { ReadStream } from "node:tty";
import { type Clock, layOutTable, systemClock, type TableColumn, wrapText } from "@espalier/core";
import type { Engine, RouterStatus } from "@espalier/server";
import type { Command } from "commander";
import { type AdminOptions, addAdminOptions, askEngines, askStatus } from "../cli/admin-client.ts";
import { UsageError } from "../cli/read-flags.ts";
import { percentOf, writeJson, writeResult } from "../output.ts";
import { abortOnSignal, wait } from "../signals.ts";
import { addCommand } from "./command-list.ts";
import { stateText } from "./engines.ts";
import { watch } from "./status.ts";

interface TopFlags extends AdminOptions {
  readonly once?: boolean;
}

const periodMs = 1_000;

export function registerTop(program: Command): void {
  const command = addCommand(program, "top")
    .description(
      "Shows routers and engines once a second: running and waiting requests, cached share, KV cache usage, " +
        "requests per second, time to first byte and per output token, goodput. Includes the peers of the given router. " +
        "Press q to quit.",
    )
    .option("--once", "print one frame of one second; implied if the output is not a terminal");
  addAdminOptions(command).action(async (flags: TopFlags) => {
    if (flags.json && !flags.once) throw new UsageError("--json needs --once");
    const signal = abortOnSignal();
    const fleet = followFleet(flags);
    if (flags.once || !process.stdout.isTTY) {
      await fleet.look();
      await wait(periodMs, signal);
      if (signal.aborted) return;
      const frame = await fleet.look();
      if (flags.json) writeJson(frame);
      else writeResult(describeFrame(frame));
      return;
    }
    await onScreen(signal, (ended) =>
      watch({ periodMs, signal: ended, look: async () => describeFrame(await fleet.look(), process.stdout.rows) }),
    );
  });
}

/** Switches to the terminal's other screen and hides the cursor; what was there before comes back. */
const enterScreen = "\u001b[?1049h\u001b[?25l";
const leaveScreen = "\u001b[?25h\u001b[?1049l";
const ctrlC = "\u0003";

/** Shows a view until the signal, or until somebody presses q or Ctrl-C. */
async function onScreen(signal: AbortSignal, show: (ended: AbortSignal) => Promise<void>): Promise<void> {
  const quit = new AbortController();
  const keys: ReadStream | undefined = process.stdin.isTTY ? process.stdin : undefined;
  const press = (typed: Buffer): void => {
    const text = typed.toString();
    if (text.includes("q") || text.includes(ctrlC)) quit.abort();
  };
  keys?.setRawMode(true).on("data", press).resume();
  process.stdout.write(enterScreen);
  try {
    await show(AbortSignal.any([signal, quit.signal]));
  } finally {
    process.stdout.write(leaveScreen);
    keys?.off("data", press).setRawMode(false).pause();
  }
}

interface Sample {
  readonly atMs: number;
  readonly status: RouterStatus;
  readonly engines: readonly Engine[];
}

interface RouterRow {
  readonly router: string;
  readonly state: string;
  readonly inFlight: number | null;
  readonly requestsPerSecond: number | null;
  /** Requests that nobody took, that failed without any content, and that were cut after some. */
  readonly refusedPerSecond: number | null;
  readonly failedPerSecond: number | null;
  readonly cutPerSecond: number | null;
  /** Shares are of prompt tokens, from 0 to 1; null when there were none. */
  readonly cachedShare: number | null;
  readonly firstByteMs: number | null;
  /** Time per output token, of streams. */
  readonly tpotMs: number | null;
  /** Share of the requests that met their objectives. */
  readonly goodputShare: number | null;
}

interface EngineRow {
  readonly engine: string;
  readonly state: string;
  readonly running: number | null;
  readonly waiting: number | null;
  /** From 0 to 1. */
  readonly kvUse: number | null;
  readonly cachedShare: number | null;
  /** Requests in flight there, by router. */
  readonly inFlight: Readonly<Record<string, number>>;
}

export interface TopFrame {
  /** Seconds that rates and shares are of. */
  readonly seconds: number;
  readonly routers: readonly RouterRow[];
  readonly engines: readonly EngineRow[];
}

/** Samples of a router: rates are of the time between the oldest and the newest. */
const keptSamples = 11;
/** Routers followed. */
const maxRouters = 32;

/** Follows a fleet from one of its routers on, also when that one is gone later. */
export function followFleet(options: AdminOptions, clock: Clock = systemClock) {
  const samples = new Map<string, Sample[]>([[options.admin, []]]);
  /** Names of routers by their admin address, also of those that are gone. */
  const nameOfAdmin = new Map<string, string>();
  const sampleOne = async (admin: string, kept: Sample[]): Promise<void> => {
    const of = { ...options, admin };
    const [status, engines] = await Promise.all([askStatus(of), askEngines(of)]);
    kept.push({ atMs: clock.nowMs(), status, engines });
    nameOfAdmin.set(admin, nameOf(status));
    if (kept.length > keptSamples) kept.shift();
  };
  return {
    /** @throws EspalierError when no router answers */
    async look(): Promise<TopFrame> {
      const results = await Promise.allSettled([...samples].map(([admin, kept]) => sampleOne(admin, kept)));
      const failures = results.filter((result) => result.status === "rejected");
      if (failures.length === results.length) throw failures[0]?.reason;
      const lost = [...samples.keys()].filter((_, at) => results[at]?.status === "rejected");
      for (const admin of lost) samples.set(admin, []);
      const known = [...samples.values()].flatMap((kept) => kept.at(-1)?.status.peers ?? []);
      const names = new Set([...samples.values()].flatMap((kept) => kept.at(-1)?.status.url ?? []));
      const added = known.map(({ adminUrl }) => adminUrl).filter((admin) => !samples.has(admin));
      for (const admin of new Set(added)) {
        if (samples.size >= maxRouters) break;
        const kept: Sample[] = [];
        await sampleOne(admin, kept).catch(() => {});
        // The first router may be reached by another name than the one that it announces.
        const url = kept[0]?.status.url;
        if (url !== undefined && !names.has(url)) samples.set(admin, kept);
        if (url !== undefined) names.add(url);
      }
      return frameOf(samples, nameOfAdmin);
    },
  };
}

function frameOf(samples: ReadonlyMap<string, readonly Sample[]>, nameOfAdmin: ReadonlyMap<string, string>): TopFrame {
  const all = [...samples].map(([admin, kept]) => ({ admin, first: kept[0], last: kept.at(-1) }));
  const spans = all.map(({ first, last }) => (first && last ? (last.atMs - first.atMs) / 1_000 : 0));
  const alive = all.flatMap(({ first, last }) => (first && last ? [{ first, last }] : []));
  const ids = [...new Set(alive.flatMap(({ last }) => last.engines.map(({ id }) => id)))];
  const routers = all.map(({ admin, first, last }) => routerRow(nameOfAdmin.get(admin) ?? admin, first, last));
  const lost = new Set(alive.flatMap(({ last }) => last.status.mesh?.lost.map(({ router }) => router) ?? []));
  const followed = new Set(routers.map(({ router }) => router));
  return {
    seconds: Math.max(0, ...spans),
    routers: [
      ...routers.map((row) => (row.inFlight === null && lost.has(row.router) ? lostRow(row.router) : row)),
      ...[...lost].filter((router) => !followed.has(router)).map(lostRow),
    ],
    engines: ids.map((id) => engineRow(id, alive)).sort((one, other) => (one.engine < other.engine ? -1 : 1)),
  };
}

const silent = {
  ...{ inFlight: null, requestsPerSecond: null, refusedPerSecond: null, failedPerSecond: null, cutPerSecond: null },
  ...{ cachedShare: null, firstByteMs: null, tpotMs: null, goodputShare: null },
  state: "no answer",
};

/** The mesh knows for half an hour which routers failed. */
const lostRow = (router: string): RouterRow => ({ ...silent, router, state: "lost" });

function routerRow(router: string, first: Sample | undefined, last: Sample | undefined): RouterRow {
  if (!first || !last) return { ...silent, router };
  const { status } = last;
  const since = (key: keyof RouterStatus["totals"]): number => status.totals[key] - first.status.totals[key];
  const seconds = (last.atMs - first.atMs) / 1_000;
  const firstByteS = ratio(since("firstByteS"), since("firstBytes"));
  const tpotS = ratio(since("tpotS"), since("streams"));
  return {
    router,
    state: status.draining ? "draining" : status.ready ? "ready" : "not ready",
    inFlight: status.inFlight,
    requestsPerSecond: ratio(since("requests"), seconds),
    refusedPerSecond: ratio(since("refused"), seconds),
    failedPerSecond: ratio(since("failed"), seconds),
    cutPerSecond: ratio(since("cut"), seconds),
    cachedShare: ratio(since("cachedTokens"), since("promptTokens")),
    firstByteMs: firstByteS === null ? null : firstByteS * 1_000,
    tpotMs: tpotS === null ? null : tpotS * 1_000,
    goodputShare: ratio(since("met"), since("met") + since("missed")),
  };
}

const nameOf = ({ mesh, url }: RouterStatus): string => mesh?.router ?? new URL(url).host;

/** Null when there is nothing to divide by, as after a restart, when counters begin again. */
const ratio = (part: number, whole: number): number | null => (whole > 0 && part >= 0 ? part / whole : null);

const inFlightOf = (engine: Engine | undefined): number =>
  (engine?.targets ?? []).reduce((total, { load }) => total + load.in_flight, 0);

interface Seen {
  readonly first: Sample;
  readonly last: Sample;
}

type Signal = "running" | "waiting" | "kv_use" | "prefix_queries" | "prefix_hits";

/** The signals are those of the first router that has them; what is in flight is each router's own. */
function engineRow(id: string, alive: readonly Seen[]): EngineRow {
  const find = ({ engines }: Sample): Engine | undefined => engines.find((engine) => engine.id === id);
  const source =
    alive.find(({ last }) => find(last)?.targets.some(({ signals }) => signals.running !== null)) ??
    alive.find(({ last }) => find(last));
  const engine = source && find(source.last);
  const before = source && find(source.first);
  const sum = (of: Engine | undefined, key: Signal): number | null => {
    const values = (of?.targets ?? []).flatMap(({ signals }) => signals[key] ?? []);
    return values.length === 0 ? null : values.reduce((total, value) => total + value, 0);
  };
  const since = (key: "prefix_queries" | "prefix_hits"): number => (sum(engine, key) ?? 0) - (sum(before, key) ?? 0);
  const kvUse = sum(engine, "kv_use");
  return {
    engine: id,
    state: engine ? stateText(engine) : "unknown",
    running: sum(engine, "running"),
    waiting: sum(engine, "waiting"),
    kvUse: kvUse === null ? null : kvUse / (engine?.targets.length ?? 1),
    cachedShare: ratio(since("prefix_hits"), since("prefix_queries")),
    inFlight: Object.fromEntries(alive.map(({ last }) => [nameOf(last.status), inFlightOf(find(last))])),
  };
}

const routerColumns: readonly TableColumn<RouterRow>[] = [
  { header: "router", value: ({ router }) => router },
  { header: "state", value: ({ state }) => state },
  { header: "in flight", value: ({ inFlight }) => inFlight ?? undefined },
  { header: "req/s", value: ({ requestsPerSecond }) => requestsPerSecond ?? undefined, digits: 1 },
  { header: "refused/s", value: ({ refusedPerSecond }) => refusedPerSecond ?? undefined, digits: 1 },
  { header: "failed/s", value: ({ failedPerSecond }) => failedPerSecond ?? undefined, digits: 1 },
  { header: "cut/s", value: ({ cutPerSecond }) => cutPerSecond ?? undefined, digits: 1 },
  { header: "cached (%)", value: ({ cachedShare }) => percentOf(cachedShare), digits: 1 },
  { header: "first byte (ms)", value: ({ firstByteMs }) => firstByteMs ?? undefined },
  { header: "tpot (ms)", value: ({ tpotMs }) => tpotMs ?? undefined, digits: 1 },
  { header: "goodput (%)", value: ({ goodputShare }) => percentOf(goodputShare), digits: 1 },
];

const engineColumns: readonly TableColumn<EngineRow>[] = [
  { header: "engine", value: ({ engine }) => engine },
  { header: "state", value: ({ state }) => state },
  { header: "running", value: ({ running }) => running ?? undefined },
  { header: "waiting", value: ({ waiting }) => waiting ?? undefined },
  { header: "kv use (%)", value: ({ kvUse }) => percentOf(kvUse), digits: 1 },
  { header: "cached (%)", value: ({ cachedShare }) => percentOf(cachedShare), digits: 1 },
];

/** Lines beside the rows of engines. */
const otherLines = 9;

/** @param lines of the screen; engines beyond them are counted */
export function describeFrame({ seconds, routers, engines }: TopFrame, lines = Number.POSITIVE_INFINITY): string {
  const alive = routers.filter(({ inFlight }) => inFlight !== null);
  const shown = engines.slice(0, Math.max(1, lines - routers.length - otherLines));
  const ofRouters = alive.map(
    ({ router }): TableColumn<EngineRow> => ({ header: `of ${router}`, value: ({ inFlight }) => inFlight[router] }),
  );
  const more = engines.length > shown.length ? `and ${engines.length - shown.length} engines more\n` : "";
  const explained = `rates and shares of the last ${Math.max(1, Math.round(seconds))} s; "of": requests of that router in flight`;
  return [
    layOutTable(routers, routerColumns),
    layOutTable(shown, [...engineColumns, ...ofRouters]) + more,
    wrapText(lines === Number.POSITIVE_INFINITY ? explained : `${explained}; q quits`, 0),
  ].join("\n");
}
