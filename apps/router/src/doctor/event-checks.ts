import { plainHost } from "@espalier/core";
import { type CompiledConfig, type FleetProbe, findEventSources } from "@espalier/server";
import { type Finding, fail, pass, tryConnection, warn } from "./check.ts";
import type { Examined } from "./examined.ts";
import { type Engine, eachOf, settingOf, upEngines } from "./examined-engines.ts";

type Feed = FleetProbe["feeds"][number];

/** Events of engines and KV pools: those that the probe reads, and what engines say of them. */
export async function checkEvents(given: Examined): Promise<readonly Finding[]> {
  const { config, fleet } = given;
  const entries = await eachOf(upEngines(fleet), (engine) => checkEventEntry(given, engine));
  const byTarget = new Map(
    upEngines(fleet).flatMap((engine) => engine.targets.map(({ key }) => [key, engine] as const)),
  );
  const isOurs = ({ target }: Feed): boolean => byTarget.has(target) || target.startsWith("pool ");
  const feeds = await eachOf(fleet.feeds.filter(isOurs), (feed) => checkFeed(given, feed, byTarget.get(feed.target)));
  const sizes = upEngines(fleet).flatMap((engine) => checkBlockSize(config, engine));
  return [...entries, ...feeds, ...sizes];
}

/** What an engine says of its events, and what the configuration says of them. */
async function checkEventEntry(given: Examined, engine: Engine): Promise<readonly Finding[]> {
  const { url, kvEvents, targets, firstRank } = engine;
  const sources = await findEventSources(given.fleet.http, url);
  if (!sources || given.config.kvEvents.listen !== undefined) return [];
  if (kvEvents) {
    const topics = [...new Set(sources.map(({ topic }) => topic))];
    if (topics.length === 0 || topics.some((topic) => topic.startsWith(kvEvents.topic))) return [];
    const message = `publishes KV events on topic ${topics.join(", ")}; configured: ${kvEvents.topic}`;
    const fix = "use the topic of the engine's --kv-events-config";
    return [fail(url, message, { setting: settingOf(given, engine, "kv-events.topic"), fix })];
  }
  if (sources.length === 0) return [pass(url, "none published; cache contents are predicted")];
  const published = sources.map((source) => source.rank);
  const entry = given.config.engines.find(({ id }) => id === engine.id);
  const isOther = entry?.firstRank !== undefined && published[0] !== entry.firstRank;
  if (published.length === targets.length && !isOther) return [];
  const configured = `configured: ${targets.length} from ${entry?.firstRank ?? (targets.length === 1 ? published[0] : firstRank)}`;
  const message = `publishes KV events of ranks ${published.join(", ")}; ${configured}`;
  const fix = "set `ranks` and `first-rank` to those of the engine";
  return [fail(url, message, { setting: settingOf(given, engine, "ranks"), fix })];
}

async function checkFeed(given: Examined, feed: Feed, engine: Engine | undefined): Promise<readonly Finding[]> {
  const { target, state, reason, endpoint, replayEndpoint, unusable, lastSequence } = feed;
  if (endpoint?.startsWith("http")) return [checkKeyedPool(feed)];
  const of = engine ? (key: string) => settingOf(given, engine, `kv-events.${key}`) : () => "kv-pools";
  if (feed.mode === "bind") return [pass(target, `connects to this machine, at ${endpoint}`)];
  if (unusable) return [unusableFeed(feed, engine, of("endpoint"))];
  const at = replayEndpoint ? "connected, with replay" : "connected";
  const open = "publish at an address that routers can reach (tcp://*:PORT), and open the port";
  if (state === "stale" && (reason === "connecting" || reason === "socket-lost")) {
    const why = (await refusalAt(endpoint)) ?? "accepts connections, but speaks no ZeroMQ publisher's protocol";
    return [fail(target, `${endpoint}: ${why}`, { setting: of("endpoint"), fix: open })];
  }
  const replay = replayEndpoint ? await refusalAt(replayEndpoint) : undefined;
  if (replay !== undefined || feed.lastReplay === "failed") {
    const why = replay ?? "no replay within 2 s";
    return [
      fail(target, `${replayEndpoint}: ${why}: missed events stay missing`, { setting: of("replay"), fix: open }),
    ];
  }
  if (state === "replaying") return [pass(target, `${at}: replay in progress`)];
  if (lastSequence === null || lastSequence === undefined) return [silentFeed(given, feed, engine, at, of("topic"))];
  const lack = state === "partial" ? `; incomplete: ${reason}` : "";
  return [pass(target, `${at}: events come${lack}`)];
}

/** A pool whose master lists keys: whether it answers, and whether engines have announced what the keys are of. */
function checkKeyedPool(feed: Feed): Finding {
  const { target, state, reason, endpoint, unusable, blocks, floatingBlocks } = feed;
  const setting = "kv-pools[].mooncake";
  if (unusable?.startsWith("block-size")) return unusableFeed(feed, undefined, setting);
  if (unusable) {
    const fix =
      "give all engines of a pool one model, block size and hash; separate others by `key-prefix` and `labels`";
    return fail(target, `${endpoint}: keys unusable: ${unusable}`, { setting, fix });
  }
  if (state === "stale") {
    const fix = "use the HTTP address of the store's master (its --metrics_port), and open the port";
    const lack = reason === "connecting" ? "no list of keys yet" : "does not answer";
    return fail(target, `${endpoint}: ${lack}`, { setting, fix });
  }
  const known = blocks.external ?? 0;
  if (known === 0 && floatingBlocks > 0) {
    const fix =
      "give the engines KV events with a replay endpoint; without one, keys count once engines announce their blocks";
    const lack = `${floatingBlocks} keys, none of a block that engines have announced`;
    return warn(target, `${endpoint}: ${lack}`, { setting, fix });
  }
  return pass(target, `${endpoint}: ${known} blocks, ${floatingBlocks} keys of unknown blocks`);
}

function unusableFeed({ target, unusable }: Feed, engine: Engine | undefined, setting: string): Finding {
  const message = `KV events unusable: ${unusable}`;
  if (unusable?.startsWith("block-size")) {
    const size = engine?.targets[0]?.signals.blockSize;
    const fix = `set it to the engine's block size${size ? `, ${size}` : ""}, or to a multiple or a fraction of it`;
    return fail(target, message, { setting: "prefix.block-size", fix });
  }
  return fail(target, message, { setting, fix: "raise `ulimit -n`, or fix the endpoint" });
}

/** Nothing came: the engine may be idle, the topic another one, or the rank's publisher off. */
function silentFeed(
  { fleet }: Examined,
  { target }: Feed,
  engine: Engine | undefined,
  at: string,
  setting: string,
): Finding {
  const keys = engine?.targets.map(({ key }) => key) ?? [];
  const others = fleet.feeds.filter((feed) => keys.includes(feed.target) && (feed.lastSequence ?? -1) >= 0);
  if (others.length > 0) {
    const fix = "check this rank's --kv-events-config and its port";
    return warn(target, `${at}: silent, while other ranks of the engine publish`, { setting, fix });
  }
  const served = Math.max(0, ...(engine?.targets.map(({ signals }) => signals.promptTokensTotal || 0) ?? []));
  if (served === 0) return pass(target, `${at}: idle`);
  const fix = "check the topic, and prefix caching and --kv-events-config at the engine";
  return warn(target, `${at}: nothing came, though the engine has read ${served} tokens`, {
    setting,
    fix,
  });
}

/** @returns why nothing can connect, or undefined */
function refusalAt(endpoint: string | null | undefined): Promise<string | undefined> {
  const { hostname, port } = new URL((endpoint ?? "").replace(/^tcp:/, "http:"));
  return tryConnection(plainHost(hostname), Number(port || 80));
}

function checkBlockSize({ prefix }: CompiledConfig, { url, targets }: Engine): readonly Finding[] {
  const size = targets[0]?.signals.blockSize ?? Number.NaN;
  const ours = prefix.blockSize;
  if (!(size > 0) || size % ours === 0 || ours % size === 0) return [];
  const message = `has ${size} tokens per block by its metrics, neither a multiple nor a fraction of ${ours}`;
  return [warn(url, message, { setting: "prefix.block-size", fix: `set it to ${size}, on all routers` })];
}
