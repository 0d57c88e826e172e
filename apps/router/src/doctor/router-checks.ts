import { lookup, Resolver } from "node:dns/promises";
import { isIP } from "node:net";
import { isDeepStrictEqual } from "node:util";
import { hostInUrl, plainHost } from "@espalier/core";
import type { CompiledConfig } from "@espalier/server";
import { type FeedReport, probeRouters, type RouterProbe, type RouterStatus } from "@espalier/server";
import { askAdmin, askEngines, askStatus } from "../cli/admin-client.ts";
import { type Check, cross, reasonOf, tick } from "./check.ts";

/** Addresses that are asked. */
const maxAddresses = 64;

/** The names by which other routers and engines are found, and the routers behind those names. */
export async function checkSeeds(config: CompiledConfig): Promise<readonly Check[]> {
  const { mesh, discovery } = config;
  const { seedRecords: records, seedServers: servers } = mesh;
  const seeds = mesh.backend === "peers" ? mesh.seeds : [];
  const names = await Promise.all([
    ...seeds.map((seed) => resolveName(plainHost(seed.slice(0, seed.lastIndexOf(":"))), servers)),
    ...(mesh.backend === "peers" ? records : []).map((record) => resolveRecords(record, servers)),
    ...discovery.dns.map(({ name, port, servers: own }) =>
      port === undefined ? resolveRecords(name, own) : resolveName(name, own),
    ),
  ]);
  const ports = seeds.map((seed) => seed.slice(seed.lastIndexOf(":") + 1));
  const addresses = [
    ...seeds.flatMap((_, at) => (names[at]?.found ?? []).map((host) => `${hostInUrl(host)}:${ports[at]}`)),
    ...names.slice(seeds.length, seeds.length + records.length).flatMap(({ found }) => found),
  ];
  return [...names.flatMap(({ checks }) => checks), ...(await checkPeers(config, [...new Set(addresses)]))];
}

interface Resolved {
  readonly checks: readonly Check[];
  /** Addresses; of records `HOST:PORT`. */
  readonly found: readonly string[];
}

async function resolveName(name: string, servers: readonly string[]): Promise<Resolved> {
  if (isIP(name) !== 0) return { checks: [], found: [name] };
  return resolved(name, async () => {
    if (servers.length > 0) return resolverOf(servers).resolve4(name);
    return (await lookup(name, { all: true })).map(({ address }) => address);
  });
}

const resolveRecords = (name: string, servers: readonly string[]): Promise<Resolved> =>
  resolved(name, async () => (await resolverOf(servers).resolveSrv(name)).map((one) => `${one.name}:${one.port}`));

async function resolved(name: string, resolve: () => Promise<readonly string[]>): Promise<Resolved> {
  try {
    const found = await resolve();
    return { checks: [tick("dns", name, `${found.length} found: ${found.slice(0, 4).join(", ")}`)], found };
  } catch (error) {
    const fix = "fix the name or create its record (in Kubernetes, a headless Service)";
    return { checks: [cross("dns", name, reasonOf(error), fix)], found: [] };
  }
}

function resolverOf(servers: readonly string[]): Resolver {
  const resolver = new Resolver({ timeout: 2_000, tries: 2 });
  if (servers.length > 0) resolver.setServers(servers);
  return resolver;
}

async function checkPeers(config: CompiledConfig, addresses: readonly string[]): Promise<readonly Check[]> {
  if (addresses.length === 0) return [];
  const probes = await probeRouters(config, addresses.slice(0, maxAddresses));
  return probes.map(checkPeer);
}

const fixes: Readonly<Record<string, string>> = {
  secret: "set the same mesh.secret on all routers; use accepted-secrets during a rotation",
  "cluster-name": "set the same mesh.cluster on all routers",
  "fleet-seed": "set the same prefix.seed on all routers",
  "block-size": "set the same prefix.block-size on all routers",
  "protocol-version": "run one version of Espalier on both",
  refused: "start the router, or remove the address from mesh.seeds",
};

function checkPeer(probe: RouterProbe): Check {
  const { address } = probe;
  if (probe.kind === "agrees") {
    return tick("router", address, `${probe.router}: cluster, secret, seed and block size match`);
  }
  const kind = probe.kind === "rejected" ? probe.reason : probe.kind;
  const says = probe.kind === "rejected" ? `link refused: ${probe.detail}` : `unreachable (${probe.kind})`;
  return cross("router", address, says, fixes[kind] ?? "start the router, and open its mesh port");
}

/** A router that runs with this configuration. */
export interface RunningRouter {
  readonly adminUrl: string;
  readonly key: string | undefined;
  readonly status: RouterStatus;
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

/** Versions and configurations of the routers that a running one knows, beside its own. */
export async function checkRunning(
  { adminUrl, key, status }: RunningRouter,
  version: string,
): Promise<readonly Check[]> {
  const optionsFor = (admin: string) => ({ admin, ...(key === undefined ? {} : { key }) });
  const askConfig = (admin: string) => askAdmin<Record<string, unknown>>(optionsFor(admin), "/admin/config");
  const own = await askConfig(adminUrl);
  const unresponsive = new Map<string, string>();
  const noteUnresponsive = async (admin: string): Promise<void> => {
    for (const { id, unresponsive_ms: ms, trouble } of await askEngines(optionsFor(admin))) {
      if (ms !== null && trouble !== null) unresponsive.set(id, trouble);
    }
  };
  await noteUnresponsive(adminUrl);
  const others = status.peers.map(async ({ router, adminUrl: admin }): Promise<readonly Check[]> => {
    try {
      const [theirs, config] = await Promise.all([
        askStatus(optionsFor(admin)),
        askConfig(admin),
        noteUnresponsive(admin),
      ]);
      return [
        checkVersion(`${router} at ${admin}`, theirs.version, version),
        checkConfig(`${router} at ${admin}`, own, config),
      ];
    } catch (error) {
      return [
        cross(
          "router",
          `${router} at ${admin}`,
          reasonOf(error),
          "use one admin key for all routers and pass it with --key",
        ),
      ];
    }
  });
  const { feeds } = await askAdmin<{ readonly feeds: readonly FeedReport[] }>(optionsFor(adminUrl), "/admin/feeds");
  const { droppedEstimates = [], droppedEntries = [] } = status.mesh ?? {};
  const ofOthers = (await Promise.all(others)).flat();
  return [
    checkVersion(adminUrl, status.version, version),
    ...checkResponses(unresponsive),
    ...checkFeeds(feeds),
    ...droppedEstimates.map(checkEstimates),
    ...droppedEntries.map(checkRegistry),
    ...ofOthers,
  ];
}

/** Engines whose health checks succeed, but from which nothing comes: see `waitOf` of the engines. */
function checkResponses(unresponsive: ReadonlyMap<string, string>): readonly Check[] {
  if (unresponsive.size === 0) return [tick("answers", "", "no engine is unresponsive")];
  const fix = "restart the engine; requests that wait there go to the others";
  return [...unresponsive].map(([id, trouble]) => cross("answers", id, trouble, fix));
}

/** What a running router could not share, because it shares as much of its kind as it may. */
function checkEstimates({ kind, count }: { readonly kind: string; readonly count: number }): Check {
  const fix = "serve fewer models and adapters per mesh: routers share estimates for 256";
  return cross("estimates", kind, `${count} shared estimates dropped: limit reached`, fix);
}

/** What operators said of engines and no router knows any more, because they said as much later. */
function checkRegistry({ kind, count }: { readonly kind: string; readonly count: number }): Check {
  const fix = "reuse engine ids: routers keep 16,384 operator entries";
  return cross("registry", kind, `${count} entries dropped: limit reached`, fix);
}

/** States of a feed whose events arrive. */
const readStates: ReadonlySet<string> = new Set(["live", "partial", "replaying"]);

/** Feeds that are listed of each reason. */
const namedFeeds = 4;

/** What a running router says of the KV events that it reads, or would read. */
function checkFeeds(feeds: readonly FeedReport[]): readonly Check[] {
  if (feeds.length === 0) return [];
  const targetsByReason = new Map<string, string[]>();
  for (const { target, unusable } of feeds) {
    if (unusable) targetsByReason.set(unusable, [...(targetsByReason.get(unusable) ?? []), target]);
  }
  const unread = feeds.filter(({ state, unusable }) => !unusable && !readStates.has(state));
  const checks = [...targetsByReason].map(([why, targets]) => {
    const fix = "raise `ulimit -n`, fix the endpoint, or set prefix.block-size to the engine's block size";
    return cross("feeds", named(targets), `KV events unusable: ${why}`, fix);
  });
  if (unread.length > 0) {
    const says = `KV events are not read: ${[...new Set(unread.map(({ state, reason }) => `${state}, ${reason}`))].join("; ")}`;
    const fix = "start the engine, or open the path to its event socket";
    checks.push(cross("feeds", named(unread.map(({ target }) => target)), says, fix));
  }
  const usable = feeds.length - unread.length - [...targetsByReason.values()].flat().length;
  if (usable > 0) {
    const holes = [...new Set(feeds.filter(({ state }) => state === "partial").map(({ reason }) => reason))];
    const lack = holes.length === 0 ? "" : `; some are incomplete: ${holes.join(", ")}`;
    checks.push(tick("feeds", "", `KV events of ${usable} ${usable === 1 ? "target" : "targets"} are usable${lack}`));
  }
  return checks;
}

function named(targets: readonly string[]): string {
  const left = targets.length - namedFeeds;
  return targets.slice(0, namedFeeds).join(", ") + (left > 0 ? ` and ${left} more` : "");
}

function checkVersion(of: string, there: string | null, here: string): Check {
  if (there === here) return tick("version", of, here);
  return cross("version", of, `runs ${there ?? "an unknown version"}, expected ${here}`, "upgrade the older one");
}

function checkConfig(
  of: string,
  own: Readonly<Record<string, unknown>>,
  theirs: Readonly<Record<string, unknown>>,
): Check {
  const keys = [...new Set([...Object.keys(own), ...Object.keys(theirs)])].filter((key) => !ownSections.has(key));
  const different = keys.filter((key) => !isDeepStrictEqual(own[key], theirs[key]));
  if (different.length === 0) return tick("configuration", of, "matches this router's");
  const says = `differs from this router's: ${different.join(", ")}`;
  return cross("configuration", of, says, "use one file for all routers, then restart or run `espalier reload`");
}
