import { once } from "node:events";
import { connect, type Socket } from "node:net";
import type { Figures } from "../support/median-spread.ts";
import type { WaitPorts } from "../support/until.ts";
import type { LimitEnginesListening, LimitEnginesOptions } from "./limit-engines.ts";
import { chatOf, type LimitsRig, type RequestOf, startConfigured, withLimitsRig } from "./limits-rig.ts";
import { runRouters } from "./routers-part.ts";

/** What a part found. */
export interface PartResult {
  /** How much of what is bounded was there. */
  readonly reached: number;
  readonly figures: Figures;
  /** What happens one step further, as a sentence. */
  readonly beyond: string;
}

export interface PartOptions {
  /** How much is to be reached. */
  readonly size: number;
  readonly isQuick: boolean;
  readonly ports: WaitPorts;
  readonly note: (line: string) => void;
}

/** One number that a user can reach. */
export interface LimitPart {
  readonly name: string;
  /** What is counted. */
  readonly what: string;
  /** How much is reached, and with `--quick`. */
  readonly size: number;
  readonly quickSize: number;
  /** Files that one process opens for each, and memory in MB that all processes take for each. */
  readonly files: number;
  readonly memoryMb: number;
  /** @throws Error when something at the limit or beyond it does not work */
  readonly run: (options: PartOptions) => Promise<PartResult>;
}

/** A part of one router and engines. */
interface FleetPart extends Omit<LimitPart, "run"> {
  readonly engines: (size: number) => LimitEnginesOptions;
  readonly config: (engines: LimitEnginesListening, size: number) => object;
  /** What is missing until the router is ready; by default, engines. */
  readonly missing?: (rig: LimitsRig, size: number) => Promise<string | undefined>;
  /** Sent before anything is measured; one request for each when absent says nothing else. */
  readonly fill?: RequestOf;
  readonly request: (size: number) => RequestOf;
  /** While it is measured, each second. */
  readonly meanwhile?: (rig: LimitsRig) => void;
  readonly beyond: (rig: LimitsRig, size: number) => Promise<string>;
}

const hostsOfPublishers = 8;
const ranksOfPublishers = 64;
const dataParallel = 8;
const fewEngines = 16;
/** As many as of a page's list are taken. */
const modelsOfEngine = 256;
const perSecondMs = 1_000;

const tiny = { ranks: 1, models: [["tiny"]] };
const tinyChat = (): RequestOf => (number) => chatOf("tiny", number);
const few = () => ({ ...tiny, engines: fewEngines });
const urlsOf = ({ urls }: LimitEnginesListening) => urls.map((url) => ({ url }));
const adaptersOf = (count: number) =>
  Object.fromEntries(Array.from({ length: count }, (_, at) => [`adapter-${at}`, { model: "tiny", path: `/${at}` }]));
const keyOf = (number: number): string => `key-of-tenant-${number}`;
const keysOf = (count: number) => Array.from({ length: count }, (_, at) => ({ name: `tenant-${at}`, key: keyOf(at) }));
const bearer = (number: number) => ({ authorization: `Bearer ${keyOf(number)}` });
const sessionChat: RequestOf = (number) => chatOf("tiny", number, { "x-session-id": `session-${number}` });
const storedResponse: RequestOf = (number) => ({
  path: "/v1/responses",
  body: JSON.stringify({ model: "tiny", input: `Question ${number}` }),
});

export const limitParts: readonly LimitPart[] = [
  fleetPart({
    ...{
      name: "feeds",
      what: "event sockets, to 512 publishers",
      size: 4_096,
      quickSize: 128,
      files: 4,
      memoryMb: 0.5,
    },
    engines: (size) => ({
      ...{ engines: size / ranksOfPublishers + 1, ranks: ranksOfPublishers, models: tiny.models },
      publisherHosts: Math.min(size / ranksOfPublishers, hostsOfPublishers),
    }),
    config: ({ urls, endpoints }) => ({
      engines: urls.slice(0, -1).map((url, at) => ({
        ...{ url, ranks: ranksOfPublishers, models: tiny.models[0] },
        "kv-events": { endpoint: endpoints[at % endpoints.length] },
      })),
    }),
    missing: async (rig, size) => {
      const rows = await feedsOf(rig);
      const connected = rows.filter(({ state }) => state === "partial" || state === "live").length;
      return connected < size ? `${connected} of ${size} feeds are connected` : undefined;
    },
    request: tinyChat,
    meanwhile: (rig) => rig.publish(),
    async beyond(rig) {
      const [url, endpoint] = [rig.engines.urls.at(-1)!, rig.engines.endpoints[0]];
      await addEngine(rig, { url, models: tiny.models[0], "kv-events": { endpoint } });
      const isIts = ({ target, state }: FeedRow): boolean =>
        target.startsWith(new URL(url).host) && state !== "connecting";
      await rig.untilReady(async () => ((await feedsOf(rig)).some(isIts) ? undefined : "one more feed says nothing"));
      const { state, unusable } = (await feedsOf(rig)).find(isIts)!;
      return `its feed is ${state}${unusable === null ? "" : `: ${unusable}`}`;
    },
  }),
  fleetPart({
    ...{ name: "ranks", what: "engines of 8 ranks", size: 512, quickSize: 16, files: 4, memoryMb: 1 },
    engines: (size) => ({ ...tiny, engines: size + 1, ranks: dataParallel }),
    config: ({ urls }) => ({ engines: urls.slice(0, -1).map((url) => ({ url, ranks: dataParallel })) }),
    request: tinyChat,
    async beyond(rig, size) {
      const said = await addEngine(rig, { url: rig.engines.urls.at(-1), ranks: dataParallel });
      await rig.untilReady(() => missingEngines(rig, size + 1));
      return `${said}, and usable`;
    },
  }),
  fleetPart({
    ...{ name: "engines", what: "engines", size: 4_096, quickSize: 32, files: 4, memoryMb: 0.3 },
    engines: (size) => ({ ...tiny, engines: size + 1 }),
    config: ({ urls }) => ({ engines: urls.slice(0, -1).map((url) => ({ url })) }),
    request: tinyChat,
    beyond: (rig) => addEngine(rig, { url: rig.engines.urls.at(-1) }),
  }),
  fleetPart({
    ...{ name: "models", what: "models", size: 300, quickSize: 20, files: 4, memoryMb: 1 },
    engines: (size) => ({
      ...{ engines: size + 1, ranks: 1 },
      models: Array.from({ length: size + 1 }, (_, at) =>
        at < size ? [`model-${at}`] : Array.from({ length: modelsOfEngine + 1 }, (__, name) => `other-${name}`),
      ),
    }),
    config: ({ urls }) => ({ engines: urls.slice(0, -1).map((url) => ({ url })) }),
    fill: (number) => chatOf(`model-${number}`, number),
    request: (size) => (number) => chatOf(`model-${number % size}`, number),
    async beyond(rig, size) {
      await addEngine(rig, { url: rig.engines.urls.at(-1) });
      await rig.untilReady(() => missingEngines(rig, size + 1));
      const { models } = JSON.parse((await rig.admin("/admin/status")).text) as { models: readonly string[] };
      return `of an engine that lists ${modelsOfEngine + 1} models, ${models.length - size} are served`;
    },
  }),
  fleetPart({
    ...{
      name: "adapters",
      what: "LoRA adapters, 32 of them loaded at an engine",
      size: 1_000,
      quickSize: 20,
      files: 1,
      memoryMb: 1,
    },
    engines: few,
    config: (engines, size) => ({
      ...{ engines: urlsOf(engines), models: { adapters: adaptersOf(size), "max-loaded-adapters": 32 } },
    }),
    fill: (number) => chatOf(`adapter-${number}`, number),
    request: (size) => (number) => chatOf(`adapter-${(number * 7) % size}`, number),
    beyond: () => refusal({ models: { adapters: adaptersOf(1_001) } }),
  }),
  fleetPart({
    ...{ name: "tenants", what: "API keys, each a tenant", size: 10_000, quickSize: 100, files: 0.1, memoryMb: 0.05 },
    engines: few,
    config: (engines, size) => ({ engines: urlsOf(engines), "api-keys": keysOf(size) }),
    fill: (number) => chatOf("tiny", number, bearer(number)),
    request: (size) => (number) => chatOf("tiny", number, bearer((number * 7) % size)),
    beyond: () => refusal({ "api-keys": keysOf(10_001) }),
  }),
  fleetPart({
    ...{ name: "sessions", what: "sessions", size: 100_000, quickSize: 100, files: 0.01, memoryMb: 0.01 },
    engines: few,
    config: (engines) => ({ engines: urlsOf(engines), policy: "sticky" }),
    fill: sessionChat,
    request: () => (number) => sessionChat(number * 7),
    async beyond(rig, size) {
      const { failed } = await rig.sendAll(fewEngines, (number) => sessionChat(number < 1 ? size : number));
      return `another session is bound, and the first ones still get answers${failed.map((error) => ` (${error})`).join("")}`;
    },
  }),
  fleetPart({
    ...{ name: "responses", what: "stored responses", size: 100_000, quickSize: 100, files: 0.01, memoryMb: 0.02 },
    engines: few,
    config: (engines) => ({ engines: urlsOf(engines) }),
    fill: storedResponse,
    request: () => storedResponse,
    async beyond(rig) {
      const { status } = await fetch(`${rig.router.listening.url}/v1/responses/resp_0_1`);
      return `the first one, forgotten by then, is asked for at the engines: ${status}`;
    },
  }),
  fleetPart({
    ...{ name: "clients", what: "client connections", size: 16_384, quickSize: 50, files: 1 / 0.34, memoryMb: 0.1 },
    engines: few,
    config: (engines, size) => ({ engines: urlsOf(engines), limits: { "max-connections": size } }),
    request: tinyChat,
    beyond: fillConnections,
  }),
  {
    ...{ name: "routers", what: "routers of a mesh, each a process", size: 64, quickSize: 3, files: 1, memoryMb: 150 },
    run: runRouters,
  },
];

function fleetPart({ engines, config, missing, fill, request, meanwhile, beyond, ...part }: FleetPart): LimitPart {
  const run: LimitPart["run"] = async ({ size, ...options }) => {
    const own = engines(size);
    const configOf = (listening: LimitEnginesListening): object => config(listening, size);
    return withLimitsRig({ ...options, engines: own, config: configOf }, async (rig) => {
      const there = part.name === "ranks" || part.name === "engines" || part.name === "models" ? size : own.engines;
      const ready = await rig.untilReady(() => (missing ?? missingEngines)(rig, missing ? size : there));
      options.note("ready");
      const filled = fill && (await rig.sendAll(size, fill));
      if (filled) options.note(`${size} requests, ${filled.perSecond.toFixed(0)} a second`);
      if (filled?.failed[0] !== undefined)
        throw new Error(`${filled.failed.length} requests failed: ${filled.failed[0]}`);
      const cancel = options.ports.scheduler.every(perSecondMs, () => meanwhile?.(rig));
      const figures = await rig.measure(request(size)).finally(cancel);
      return { reached: size, figures: { ready_ms: ready, ...figures }, beyond: await beyond(rig, size) };
    });
  };
  return { ...part, run };
}

interface FeedRow {
  readonly target: string;
  readonly state: string;
  readonly unusable: string | null;
}

async function feedsOf(rig: LimitsRig): Promise<readonly FeedRow[]> {
  return (JSON.parse((await rig.admin("/admin/feeds")).text) as { feeds: readonly FeedRow[] }).feeds;
}

async function missingEngines(rig: LimitsRig, count: number): Promise<string | undefined> {
  const { usableEngines } = JSON.parse((await rig.admin("/admin/status")).text) as { usableEngines: number };
  return usableEngines < count ? `${usableEngines} of ${count} engines are usable` : undefined;
}

/** @returns what the router said of one engine more */
async function addEngine(rig: LimitsRig, engine: object): Promise<string> {
  const { status, text } = await rig.admin("/admin/engines", {
    ...{ method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(engine) },
  });
  return status === 201 ? "it is taken" : `${status} ${text}`;
}

/** @returns what `serve` says of a configuration */
async function refusal(config: object): Promise<string> {
  try {
    await (await startConfigured(config)).stop();
    return "it is taken";
  } catch (refused) {
    return (refused as Error).message.replaceAll("\n", " ");
  }
}

/** Opens as many connections as the router takes, and one more. */
async function fillConnections(rig: LimitsRig, size: number): Promise<string> {
  const port = Number(new URL(rig.router.listening.url).port);
  const sockets: Socket[] = [];
  try {
    // Those that measured before are among them.
    for (let at = 0; at < size; at++) {
      const socket = connect(port, "127.0.0.1").on("error", () => {});
      sockets.push(socket);
      await once(socket, "connect");
    }
    const asked = async (): Promise<string> => {
      const { path, body } = chatOf("tiny", 0);
      const answer = await fetch(`http://127.0.0.1:${port}${path}`, {
        ...{ method: "POST", headers: { "content-type": "application/json" }, body },
      });
      return answer.ok ? "answers" : `${answer.status} ${await answer.text()}`;
    };
    const more = await asked();
    for (const socket of sockets) socket.destroy();
    await rig.untilReady(async () =>
      (await asked()) === "answers" ? undefined : "no room when connections have ended",
    );
    return `one more gets ${more}; when they are gone, answers again`;
  } finally {
    for (const socket of sockets) socket.destroy();
  }
}
