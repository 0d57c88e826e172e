import { isDeepStrictEqual } from "node:util";
import { type HttpClient, systemClock } from "@espalier/core";
import {
  type CompiledConfig,
  type FeedReport,
  findRouters,
  probeMeshRedis,
  type RouterProbe,
  type RouterStatus,
} from "@espalier/server";
import { askAdmin, askEngines, askStatus } from "../cli/admin-client.ts";
import { type CheckRow, checkClock, type Dated, type Finding, fail, pass, reasonOf, warn } from "./check.ts";
import type { Examined, PeerReport, RunningReport, RunningRouter } from "./examined.ts";

/** The routers that one of this configuration would meet. */
export const routerChecks: readonly CheckRow<Pick<Examined, "config">>[] = [
  { name: "redis", applies: ({ config }) => config.mesh.backend === "redis", run: ({ config }) => checkRedis(config) },
  { name: "router", applies: ({ config }) => config.mesh.backend === "peers", run: ({ config }) => checkPeers(config) },
];

/** The router that runs with this configuration, and those that it knows. */
export const runningChecks: readonly CheckRow<{ readonly running: RunningReport; readonly version: string }>[] = [
  { name: "version", run: ({ running, version }) => checkVersions(running, version) },
  {
    name: "settings",
    run: ({ running }) => [
      ...running.peers.flatMap((peer) => checkSettings(running.config, peer)),
      ...checkDigests(running.status),
    ],
  },
  { name: "clock", run: ({ running }) => checkClocks(running) },
  { name: "paused", run: ({ running }) => [...running.paused].map(checkPaused) },
  { name: "answers", run: ({ running }) => checkResponses(running.unresponsive) },
  { name: "feeds", run: ({ running }) => checkFeeds(running.feeds) },
  { name: "estimates", run: ({ running }) => (running.status.mesh?.droppedEstimates ?? []).map(checkEstimates) },
  { name: "registry", run: ({ running }) => (running.status.mesh?.droppedEntries ?? []).map(checkRegistry) },
];

async function checkPeers(config: CompiledConfig): Promise<readonly Finding[]> {
  const { names, routers, lines } = await findRouters(config);
  return [
    ...lines.flatMap(({ fields: { source, error } }) =>
      typeof source === "string"
        ? [
            fail(source, reasonOf(error), {
              setting: "mesh.seeds",
              fix: "fix the name, the file, or the rights that it needs",
            }),
          ]
        : [],
    ),
    ...names.map(({ name, addresses, error }) => {
      if (error === undefined) return pass(name, `${addresses.length} found: ${addresses.slice(0, 4).join(", ")}`);
      const fix = "fix the name or create its record (in Kubernetes, a headless Service)";
      return fail(name, reasonOf(error), { setting: "mesh.seeds", fix });
    }),
    ...routers.map(checkPeer),
  ];
}

async function checkRedis(config: CompiledConfig): Promise<readonly Finding[]> {
  try {
    await probeMeshRedis(config);
    return [pass("mesh.redis-url", "connects, and answers PING")];
  } catch (error) {
    const fix = "start Redis, or fix the address, the user and the password of the URL";
    return [fail("mesh.redis-url", reasonOf(error), { setting: "mesh.redis-url", fix })];
  }
}

const fixes: Readonly<Record<string, readonly [setting: string, fix: string]>> = {
  secret: ["mesh.secret", "set the same mesh.secret on all routers; use accepted-secrets during a rotation"],
  "cluster-name": ["mesh.cluster", "set the same mesh.cluster on all routers"],
  "fleet-seed": ["prefix.seed", "set the same prefix.seed on all routers"],
  "block-size": ["prefix.block-size", "set the same prefix.block-size on all routers"],
  "protocol-version": ["mesh.seeds", "run one version of Espalier on both"],
  refused: ["mesh.seeds", "start the router, or remove the address from mesh.seeds"],
};

function checkPeer(probe: RouterProbe): Finding {
  const { address } = probe;
  if (probe.kind === "agrees") return pass(address, `${probe.router}: cluster, secret, seed and block size match`);
  const kind = probe.kind === "rejected" ? probe.reason : probe.kind;
  const says = probe.kind === "rejected" ? `link refused: ${probe.detail}` : `unreachable (${probe.kind})`;
  const [setting, fix] = fixes[kind] ?? [
    "mesh.seeds",
    "start the router, open its mesh port, and use the same mesh.tls",
  ];
  return fail(address, says, { setting, fix });
}

const timeoutMs = 2_000;
/** Largest answer of a router's admin API. */
const maxBytes = 16_777_216;

/** What `/admin/status` answers, and when. @throws EspalierError without an answer */
export async function statusAt(http: HttpClient, admin: string, key: string | undefined) {
  const askedWallMs = systemClock.wallMs();
  const headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
  const { status, body, headers: sent } = await http({ url: `${admin}/admin/status`, headers, timeoutMs, maxBytes });
  const at: Dated = { date: sent.date, askedWallMs, endedWallMs: systemClock.wallMs() };
  return { status, body, at };
}

/** Asks a running router, and those that it knows. @throws EspalierError when it does not answer */
export async function askRunning(router: RunningRouter, http: HttpClient): Promise<RunningReport> {
  const { adminUrl, key, status } = router;
  const optionsFor = (admin: string) => ({ admin, ...(key === undefined ? {} : { key }) });
  const askConfig = (admin: string) => askAdmin<Readonly<Record<string, unknown>>>(optionsFor(admin), "/admin/config");
  const unresponsive = new Map<string, string>();
  const paused = new Set<string>();
  const noteEngines = async (admin: string): Promise<void> => {
    for (const { id, unresponsive_ms: ms, trouble, paused: isPaused } of await askEngines(optionsFor(admin))) {
      if (isPaused) paused.add(id);
      if (ms !== null && trouble !== null) unresponsive.set(id, trouble);
    }
  };
  const config = await askConfig(adminUrl);
  await noteEngines(adminUrl);
  const { feeds } = await askAdmin<{ readonly feeds: readonly FeedReport[] }>(optionsFor(adminUrl), "/admin/feeds");
  const peers = status.peers.map(async ({ router: id, adminUrl: admin }): Promise<PeerReport> => {
    const name = `${id} at ${admin}`;
    try {
      const [{ version }, theirs, { at }] = await Promise.all([
        askStatus(optionsFor(admin)),
        askConfig(admin),
        statusAt(http, admin, key),
        noteEngines(admin),
      ]);
      return { name, answer: { version, config: theirs, at }, error: undefined };
    } catch (error) {
      return { name, answer: undefined, error };
    }
  });
  return { ...router, config, feeds, unresponsive, paused, peers: await Promise.all(peers) };
}

/** Sections in which routers of one mesh may differ. */
const ownSections: ReadonlySet<string> = new Set([
  "listen",
  "admin",
  "mesh",
  "log",
  "processes",
  "tracing",
  "endpoint-picker",
]);

function checkVersions({ adminUrl, status, peers }: RunningReport, version: string): readonly Finding[] {
  const { router, ...unanswered } = {
    router: adminUrl,
    setting: "admin.key",
    fix: "use one admin key for all routers and pass it with --key",
  };
  return [
    checkVersion(router, status.version, version),
    ...peers.map(({ name, answer, error }) =>
      answer ? checkVersion(name, answer.version, version) : fail(name, reasonOf(error), unanswered),
    ),
  ];
}

function checkClocks({ adminUrl, at, peers }: RunningReport): readonly Finding[] {
  return [
    ...checkClock(adminUrl, "router", at),
    ...peers.flatMap(({ name, answer }) => checkClock(name, "router", answer?.at)),
  ];
}

/** Engines whose health checks succeed, but from which nothing comes: see `waitOf` of the engines. */
function checkResponses(unresponsive: ReadonlyMap<string, string>): readonly Finding[] {
  if (unresponsive.size === 0) return [pass("", "no engine is unresponsive")];
  const fix = "restart the engine; requests that wait there go to the others";
  return [...unresponsive].map(([id, trouble]) => fail(id, trouble, { setting: "engines", fix }));
}

const checkPaused = (id: string): Finding =>
  warn(id, "paused by an RL framework: gets no requests", {
    setting: "rollouts.port",
    fix: "resume it at the rollouts listener",
  });

/** What a running router could not share, because it shares as much of its kind as it may. */
function checkEstimates({ kind, count }: { readonly kind: string; readonly count: number }): Finding {
  const fix = "serve fewer models and adapters per mesh: routers share estimates for 256";
  return fail(kind, `${count} shared estimates dropped: limit reached`, { setting: "models.adapters", fix });
}

/** What operators said of engines and no router knows any more, because they said as much later. */
function checkRegistry({ kind, count }: { readonly kind: string; readonly count: number }): Finding {
  const fix = "reuse engine ids: routers keep 16,384 operator entries";
  return fail(kind, `${count} entries dropped: limit reached`, { setting: "engines", fix });
}

/** States of a feed whose events arrive. */
const readStates: ReadonlySet<string> = new Set(["live", "partial", "replaying"]);

/** Feeds that are listed of each reason. */
const namedFeeds = 4;

/** What a running router says of the KV events that it reads, or would read. */
function checkFeeds(feeds: readonly FeedReport[]): readonly Finding[] {
  if (feeds.length === 0) return [];
  const targetsByReason = new Map<string, string[]>();
  for (const { target, unusable } of feeds) {
    if (unusable) targetsByReason.set(unusable, [...(targetsByReason.get(unusable) ?? []), target]);
  }
  const unread = feeds.filter(({ state, unusable }) => !unusable && !readStates.has(state));
  const checks = [...targetsByReason].map(([why, targets]) => {
    const fix = "raise `ulimit -n`, fix the endpoint, or set prefix.block-size to the engine's block size";
    const setting = why.startsWith("block-size") ? "prefix.block-size" : "kv-events.mode";
    return fail(named(targets), `KV events unusable: ${why}`, { setting, fix });
  });
  if (unread.length > 0) {
    const says = `KV events are not read: ${[...new Set(unread.map(({ state, reason }) => `${state}, ${reason}`))].join("; ")}`;
    const fix = "start the engine, or open the path to its event socket";
    checks.push(fail(named(unread.map(({ target }) => target)), says, { setting: "kv-events.mode", fix }));
  }
  const usable = feeds.length - unread.length - [...targetsByReason.values()].flat().length;
  if (usable > 0) {
    const holes = [...new Set(feeds.filter(({ state }) => state === "partial").map(({ reason }) => reason))];
    const lack = holes.length === 0 ? "" : `; some are incomplete: ${holes.join(", ")}`;
    checks.push(pass("", `KV events of ${usable} ${usable === 1 ? "target" : "targets"} are usable${lack}`));
  }
  return checks;
}

function named(targets: readonly string[]): string {
  const left = targets.length - namedFeeds;
  return targets.slice(0, namedFeeds).join(", ") + (left > 0 ? ` and ${left} more` : "");
}

function checkVersion(target: string, there: string | null, here: string): Finding {
  if (there === here) return pass(target, here);
  return fail(target, `runs ${there ?? "an unknown version"}, expected ${here}`, { fix: "upgrade the older one" });
}

const oneFile = "use one file for all routers, then restart or run `espalier reload`";

function checkSettings(own: RunningReport["config"], { name, answer }: PeerReport): readonly Finding[] {
  if (!answer) return [];
  const theirs = answer.config;
  const keys = [...new Set([...Object.keys(own), ...Object.keys(theirs)])].filter((key) => !ownSections.has(key));
  const different = keys.filter((key) => !isDeepStrictEqual(own[key], theirs[key]));
  if (different.length === 0) return [pass(name, "matches this router's")];
  const message = `differs from this router's: ${different.join(", ")}`;
  return [fail(name, message, { setting: different.join(", "), fix: oneFile })];
}

/** Of routers whose admin API is out of reach, digests are known. */
function checkDigests({ mesh, peers }: RouterStatus): readonly Finding[] {
  return (mesh?.members ?? []).flatMap(({ router, differs = [] }) => {
    const sections = differs.filter((section) => section !== "version");
    if (sections.length === 0 || peers.some((peer) => peer.router === router)) return [];
    const message = `another digest of ${sections.join(", ")} than this router's`;
    return [warn(router, message, { setting: sections.join(", "), fix: oneFile })];
  });
}
