import {
  type Cancel,
  type Clock,
  EspalierError,
  type HttpClient,
  type Random,
  type Scheduler,
  silentMeter,
  startTogether,
  systemClock,
  systemRandom,
  systemScheduler,
} from "@espalier/core";
import type { EngineRecord, Fleet } from "@espalier/engines";
import type { CompiledConfig } from "./config/index.ts";
import { createEngineSide } from "./create-context.ts";
import { createEngineSources } from "./lifecycle/engine-sources.ts";
import { createLogCollector, type LoggedLine } from "./lifecycle/log-collector.ts";
import { createLocalTable } from "./lifecycle/operator-engines.ts";
import type { TargetFeedDescription } from "./prefix/engine-feeds.ts";

/** The last answer at a URL. */
export interface ProbedAnswer {
  /** 0 without an answer. */
  readonly status: number;
  /** Value of its `Date` header. */
  readonly date: string | undefined;
  /** Why there was none. */
  readonly error: unknown;
  /** On this machine's clock, in milliseconds since the Unix epoch. */
  readonly askedWallMs: number;
  readonly endedWallMs: number;
  /** Requests that have ended. */
  readonly count: number;
}

/** The engines of a configuration as a router finds them. */
export interface FleetProbe {
  readonly fleet: Fleet;
  /** Control traffic to engines, as a router's. */
  readonly http: HttpClient;
  readonly answerAt: (url: string) => ProbedAnswer | undefined;
  /** Feeds of engines and KV pools; none where the configuration or the options turn them off. */
  readonly feeds: readonly TargetFeedDescription[];
  /** Open files of event sockets. */
  readonly openEventFiles: number;
  /** Why a router would not start; undefined where it would. */
  readonly failure: string | undefined;
  /** The warnings and errors that a router would log. */
  readonly lines: readonly LoggedLine[];
}

export interface FleetProbeOptions {
  /** Most files and sockets the process may have open at once. */
  readonly openFiles: number;
  /** Whether to subscribe to KV events. */
  readonly readsEvents: boolean;
  /** Engines that only a running router knows. */
  readonly known: readonly { readonly id: string; readonly url: string }[];
  /** Called every three seconds with what the probe waits for. */
  readonly onWait?: (waitingFor: readonly string[]) => void;
  readonly clock?: Clock;
  readonly scheduler?: Scheduler;
  readonly random?: Random;
}

/** Failed health checks in a row after which an engine's state is final. */
const finalFailures = 3;
/** Failed requests for a list of models, or for a metrics page that is late, after which there is none. */
const finalAttempts = 3;
/** How long an event socket may connect, and an idle one is listened to. */
const connectMs = 3_000;
const listenMs = 1_000;
const lookEveryMs = 50;
const reportEveryMs = 3_000;
/** Beside the timeouts of requests, the longest time until everything is found. */
const extraMs = 10_000;
/** Longest time until everything is found; what is not is reported as it is. */
const maxProbeMs = 60_000;

/**
 * Runs what a router of this configuration runs towards engines, until everything is found or failed: discovery, health
 * checks, model lists, metrics, KV events, tokenizers. It shares nothing with other routers, listens nowhere and serves nobody.
 *
 * @param use gets what was found; the connections are open until it is done
 * @throws EspalierError `config_unreadable` for certificates that cannot be used
 */
export async function probeFleet<Result>(
  config: CompiledConfig,
  options: FleetProbeOptions,
  use: (probe: FleetProbe) => Promise<Result>,
): Promise<Result> {
  const { clock = systemClock, scheduler = systemScheduler, random = systemRandom } = options;
  const answers = new Map<string, ProbedAnswer>();
  const lines: LoggedLine[] = [];
  const ports = { clock, scheduler, random, logger: createLogCollector(lines), meter: silentMeter };
  const alone: CompiledConfig = {
    ...config,
    mesh: { ...config.mesh, backend: "off" },
    kvEvents: { ...config.kvEvents, mode: options.readsEvents ? config.kvEvents.mode : "off" },
  };
  const { proxy, fleet, prefix, http } = createEngineSide(
    alone,
    ports,
    { metricsEveryMs: () => undefined },
    {
      ...{ openFiles: options.openFiles, version: "", settings: new Map(), mayBindEvents: false },
      observe: (client) => observed(client, clock, answers),
    },
  );
  const sourcesOf = (enginesFile: string | undefined) =>
    createEngineSources({ ...ports, config: { ...alone, enginesFile }, table: createLocalTable(), fleet });
  const parts = startTogether([proxy, prefix, fleet]);
  await parts.start();
  let failure: string | undefined;
  let sources = sourcesOf(config.enginesFile);
  try {
    try {
      await sources.start();
    } catch (error) {
      failure = error instanceof Error ? error.message : String(error);
      sources = sourcesOf(undefined);
      await sources.start();
    }
    addKnown(options.known, fleet, sources);
    const feeds = () => prefix.feeds?.describe() ?? [];
    const waitingFor = () => whatIsOpen(alone, { fleet, feeds: feeds(), answers, clock, reader: prefix.reader });
    const { health, scrape } = config;
    const maxMs = Math.min(maxProbeMs, finalFailures * health.timeoutMs + scrape.timeoutMs + extraMs);
    await waitUntilNone(waitingFor, { clock, scheduler, maxMs, onWait: options.onWait ?? (() => {}) });
    const found = { feeds: feeds(), openEventFiles: prefix.openFiles, failure, lines };
    return await use({ fleet, http, answerAt: (url) => answers.get(url), ...found });
  } finally {
    await sources.stop();
    await parts.stop();
  }
}

/** Remembers the last answer at each URL. */
function observed(http: HttpClient, clock: Clock, answers: Map<string, ProbedAnswer>): HttpClient {
  return async (request) => {
    const askedWallMs = clock.wallMs();
    const keep = (of: Pick<ProbedAnswer, "status" | "date" | "error">): void => {
      const count = (answers.get(request.url)?.count ?? 0) + 1;
      answers.set(request.url, { ...of, askedWallMs, endedWallMs: clock.wallMs(), count });
    };
    try {
      const response = await http(request);
      keep({ status: response.status, date: response.headers.date, error: undefined });
      return response;
    } catch (error) {
      keep({ status: 0, date: undefined, error });
      throw error;
    }
  };
}

type Sources = ReturnType<typeof createEngineSources>;

function addKnown(known: FleetProbeOptions["known"], fleet: Fleet, { operators }: Sources): void {
  for (const { id, url } of known) {
    try {
      if (fleet.engines.every((engine) => engine.id !== id && engine.url !== url)) operators.add({ id, url });
    } catch (error) {
      if (!(error instanceof EspalierError)) throw error;
    }
  }
}

interface Findings {
  readonly fleet: Fleet;
  readonly feeds: readonly TargetFeedDescription[];
  readonly answers: ReadonlyMap<string, ProbedAnswer>;
  readonly clock: Clock;
  readonly reader: { readonly waitingFor: readonly string[] };
}

/** What is neither found nor failed yet, in words. */
function whatIsOpen(config: CompiledConfig, { fleet, feeds, answers, clock, reader }: Findings): readonly string[] {
  const attempts = (url: string): number => answers.get(url)?.count ?? 0;
  const ofEngine = (engine: EngineRecord): readonly string[] => {
    const { id, url, state, health } = engine;
    if (state !== "up") return health.consecutiveFailures < finalFailures ? [`health of ${id}`] : [];
    const pages = [config.scrape.path, "/prometheus/metrics"].map((path) => answers.get(url + path));
    const hasNoPage =
      pages.every((page) => (page?.status ?? 0) > 0) ||
      pages.reduce((sum, page) => sum + (page?.count ?? 0), 0) >= finalAttempts;
    const asksForEvents = config.kvEvents.mode !== "off" && !config.kvEvents.listen && !engine.kvEvents;
    const hasFeeds = feeds.some((feed) => engine.targets.some(({ key }) => key === feed.target));
    // vLLM's path is asked first; an engine that has no events there is asked for SGLang's.
    const isAsked =
      hasFeeds || attempts(`${url}/server_info`) > 0 || answers.get(`${url}/kv_event_sources`)?.status === 0;
    return [
      ...(engine.models || attempts(`${url}/v1/models`) >= finalAttempts ? [] : [`models of ${id}`]),
      ...(!engine.isUnread || hasNoPage ? [] : [`metrics of ${id}`]),
      ...(!asksForEvents || isAsked ? [] : [`event sockets of ${id}`]),
    ];
  };
  const ofFeed = ({ target, state, reason, since }: TargetFeedDescription): readonly string[] => {
    const ageMs = clock.wallMs() - Date.parse(since ?? "");
    const isOpen =
      state === "replaying" ||
      (state === "stale" && ageMs < connectMs) ||
      (state === "partial" && reason === "nothing-received" && ageMs < listenMs);
    return isOpen ? [`KV events of ${target}: ${reason}`] : [];
  };
  return [...fleet.engines.flatMap(ofEngine), ...feeds.flatMap(ofFeed), ...reader.waitingFor];
}

interface Waiting extends Required<Pick<FleetProbeOptions, "onWait" | "clock" | "scheduler">> {
  readonly maxMs: number;
}

function waitUntilNone(list: () => readonly string[], { clock, scheduler, maxMs, onWait }: Waiting): Promise<void> {
  const startedMs = clock.nowMs();
  let reportedMs = startedMs;
  return new Promise((resolve) => {
    const cancel: Cancel = scheduler.every(lookEveryMs, () => {
      const nowMs = clock.nowMs();
      const open = list();
      if (open.length === 0 || nowMs - startedMs >= maxMs) {
        cancel();
        resolve();
      } else if (nowMs - reportedMs >= reportEveryMs) {
        reportedMs = nowMs;
        onWait(open);
      }
    });
  });
}
