import { EspalierError } from "@espalier/core";
import { agentTraceLines } from "../clients/agent-trace.ts";
import { createZipf, ownRandom, shuffled } from "../clients/draws.ts";
import { treeScripts } from "../clients/long-chats.ts";
import { createClosedLoop, createOpenLoop, createStagedLoad } from "../clients/loops.ts";
import { prefixGroupScripts } from "../clients/scripts.ts";
import type { SendLimits } from "../clients/session.ts";
import { createTraceStarts, createTraceUsers } from "../clients/trace-clients.ts";
import { createTraceReplay } from "../clients/traces.ts";
import { createTreeUsers, createUsers, regionOfUser } from "../clients/users.ts";
import type { Workload } from "../clients/workload.ts";
import { mooncakeStepMs, readTraceLines, type TraceRequest, traceSessions } from "../workload/index.ts";
import {
  amount,
  boolean,
  count,
  countOrNone,
  kindOf,
  list,
  milliseconds,
  object,
  plainObject,
  positive,
  type Read,
  seconds,
} from "./read-fields.ts";
import { requests, scriptsOf, spread } from "./requests.ts";
import type { WorkloadOptions } from "./scenario.ts";

const stage = object({ perS: positive, durationS: seconds });

/** What sends requests, and when. `docs/guides/scenarios.md` says what each does. */
const loops = {
  open: object({ startsPerS: positive, requests }, { perEngines: count, burst: count }),
  closed: object(
    { clients: count, requests },
    { perEngines: count, sessions: count, groupSize: count, endsSessions: boolean },
  ),
  stages: object({
    ...{ stages: list(stage), maxInFlight: count, groups: count, promptsPerGroup: count },
    ...{ prefixTokens: count, questionTokens: count, outputTokens: count },
  }),
  topics: object({
    ...{ quiet: stage, surge: stage, othersPerS: positive, zipf: amount("powers") },
    ...{ groups: count, prefixTokens: count, ownTokens: countOrNone, outputTokens: count },
  }),
  users: object({ users: list(count), requests }),
  trees: object({
    ...{ users: list(count), branches: list(count), sharedTokens: countOrNone, promptTokens: list(count) },
    outputTokens: spread,
  }),
  trace: object({}, { stepMs: milliseconds }),
  "trace-users": object({ users: count, rampS: seconds }),
  "trace-starts": object({ startsPerS: positive }),
};

/** Clients as a file describes them. */
export const clients = kindOf("loop", loops);
export type Clients = ReturnType<typeof clients>;

type ClientsOf<Loop extends Clients["loop"]> = Extract<Clients, { readonly loop: Loop }>;

/** Loops whose rate does not depend on the fleet, so that it has a knee. */
const openLoops: readonly Clients["loop"][] = ["open", "stages", "topics", "trace", "trace-starts"];
export const isOpenLoop = ({ loop }: Clients): boolean => openLoops.includes(loop);

/**
 * Reads the clients of a variant. What it does not say is the scenario's, unless it names another loop, and the same for its
 * requests, unless they are of another kind.
 */
export const clientsLike =
  (own: Readonly<Record<string, unknown>>): Read<Clients> =>
  (value, field, fail) => {
    const written = plainObject(value, field, fail);
    if (written.loop !== undefined && written.loop !== own.loop) return clients(written, field, fail);
    const asked = written.requests as { readonly kind?: unknown } | undefined;
    const isOther = asked !== undefined && (typeof asked !== "object" || asked === null || asked.kind !== undefined);
    const mine = own.requests as object | undefined;
    const merged = asked === undefined || mine === undefined || isOther ? (asked ?? mine) : { ...mine, ...asked };
    return clients({ ...own, ...written, ...(merged === undefined ? {} : { requests: merged }) }, field, fail);
  };

/** What clients need to know of their scenario. */
export interface ClientsContext {
  readonly name: string;
  readonly durationS?: number | undefined;
  /** Name of the trace that it replays. */
  readonly trace?: string | undefined;
  /** The invented trace that takes the place of one that is not given. */
  readonly syntheticTrace?: SyntheticTrace | undefined;
}

/** @throws EspalierError `config_invalid` for a trace that is missing, or of another kind */
export function createClients(written: Clients, options: WorkloadOptions, context: ClientsContext): Workload {
  const limits = limitsOf(options, context.durationS);
  switch (written.loop) {
    case "open":
      return openLoop(written, options, limits);
    case "closed":
      return closedLoop(written, options, limits);
    case "stages":
      return stages(written, options, limits);
    case "topics":
      return topics(written, options, limits);
    case "users":
      return createUsers({
        ...{ seed: options.seed, users: scaledUsers(written.users, options), limits },
        scriptOf: scriptsOf(written.requests, options.seed).scriptOf,
      });
    case "trees":
      return trees(written, options, limits);
    default:
      return traceClients(written, options, { limits, context });
  }
}

/** When a run stops sending: as the user asked, else after the scenario's own duration. */
function limitsOf({ requests, durationS }: WorkloadOptions, ownDurationS?: number): SendLimits {
  return { requests, durationS: durationS ?? (requests === undefined ? ownDurationS : undefined) };
}

/** A number of clients times the scale: at least one. */
const scaled = (clients: number, { scale }: WorkloadOptions): number => Math.max(1, Math.round(clients * scale));
const scaledUsers = (users: readonly number[], options: WorkloadOptions): readonly number[] =>
  users.map((count) => scaled(count, options));

function openLoop(written: ClientsOf<"open">, { seed, scale, engines }: WorkloadOptions, limits: SendLimits): Workload {
  const { startsPerS, perEngines, burst } = written;
  return createOpenLoop({
    seed,
    startsPerS: startsPerS * scale * (perEngines === undefined ? 1 : engines / perEngines),
    ...(burst === undefined ? {} : { burst }),
    ...scriptsOf(written.requests, seed),
    limits,
  });
}

function closedLoop(written: ClientsOf<"closed">, options: WorkloadOptions, limits: SendLimits): Workload {
  const { seed, engines } = options;
  const { perEngines, groupSize, endsSessions } = written;
  const clients = scaled(
    perEngines === undefined ? written.clients : (written.clients * engines) / perEngines,
    options,
  );
  const { scriptOf } = scriptsOf(written.requests, seed);
  return createClosedLoop({
    ...{ seed, clients, scriptOf, limits, sessions: written.sessions ?? clients * (groupSize ?? 1) },
    ...(groupSize !== undefined && { groupSize }),
    ...(endsSessions !== undefined && { endsSessions }),
  });
}

/** Users whose prompts are the same each time, in rounds of all users, at rates in stages. */
function stages(written: ClientsOf<"stages">, options: WorkloadOptions, limits: SendLimits): Workload {
  const { groups, promptsPerGroup, prefixTokens, questionTokens, outputTokens } = written;
  const { seed, scale } = options;
  const users = groups * promptsPerGroup;
  const order = shuffled(users, seed);
  return createStagedLoad({
    seed,
    stages: written.stages.map(({ perS, durationS }) => ({ ratePerS: perS * scale, durationS })),
    maxInFlight: scaled(written.maxInFlight, options),
    limits,
    visitOf(index) {
      const user = order[index % users]!;
      return {
        session: user,
        turn: Math.floor(index / users),
        script: {
          expectedTokens: prefixTokens + questionTokens + outputTokens,
          write(_, conversation) {
            conversation.share(Math.floor(user / promptsPerGroup), prefixTokens);
            conversation.share(groups + user, questionTokens);
            return outputTokens;
          },
        },
      };
    },
  });
}

/** Questions on documents, popular ones first, and on the one that is the topic: quiet, then a surge, then another topic. */
function topics(written: ClientsOf<"topics">, { seed, scale }: WorkloadOptions, limits: SendLimits): Workload {
  const { quiet, surge, othersPerS, zipf, groups } = written;
  const popular = createZipf({ count: groups, exponent: zipf });
  const sessionsOf = ({ perS, durationS }: typeof quiet): number => (perS + othersPerS) * scale * durationS;
  const quietSessions = sessionsOf(quiet);
  const topicSessions = quietSessions + sessionsOf(surge);
  /** Questions per second on the topic around the start of a session, at scale 1. */
  const topicPerS = (session: number): number => (session % topicSessions < quietSessions ? quiet : surge).perS;
  const documentOf = (session: number): number => {
    const random = ownRandom(seed, session);
    const perS = topicPerS(session);
    const isTopic = random.float() * (perS + othersPerS) < perS;
    return isTopic ? Math.floor(session / topicSessions) % groups : popular.draw(random);
  };
  return createOpenLoop({
    seed,
    startsPerS: (session) => (topicPerS(session) + othersPerS) * scale,
    meanTurns: 1,
    scriptOf: prefixGroupScripts(written, seed, documentOf),
    limits,
  });
}

function trees(written: ClientsOf<"trees">, options: WorkloadOptions, limits: SendLimits): Workload {
  const { seed } = options;
  const users = scaledUsers(written.users, options);
  const scriptOf = treeScripts(written, seed, (session) => regionOfUser(session, users));
  return createTreeUsers({ seed, users, limits, scriptOf });
}

function traceClients(
  written: ClientsOf<"trace" | "trace-users" | "trace-starts">,
  options: WorkloadOptions,
  { limits, context }: { readonly limits: SendLimits; readonly context: ClientsContext },
): Workload {
  const { seed, scale } = options;
  const rows = rowsOf(options, context);
  if (written.loop === "trace") {
    const stepMs = written.stepMs ?? (isRounded(rows) ? mooncakeStepMs : undefined);
    return createTraceReplay({ seed, rows, speed: scale, stepMs, limits });
  }
  if (traceSessions(rows) === undefined) {
    const message = `${context.name}: the trace does not say what its requests wait for, as claude-code traces do`;
    throw new EspalierError("config_invalid", message, { param: "trace" });
  }
  if (written.loop === "trace-starts")
    return createTraceStarts({ seed, rows, startsPerS: written.startsPerS * scale, limits });
  return createTraceUsers({ seed, rows, users: scaled(written.users, options), rampS: written.rampS, limits });
}

interface SyntheticTrace {
  readonly sessions: number;
  readonly seed: number;
}

const syntheticRows = new Map<string, readonly TraceRequest[]>();

function rowsOf({ trace }: WorkloadOptions, { name, trace: file, syntheticTrace }: ClientsContext) {
  if (trace !== undefined && (trace.length > 0 || file === undefined)) return trace;
  if (syntheticTrace === undefined) {
    if (file === undefined) return [];
    throw new EspalierError("config_invalid", `${name} replays ${file}: name the file`, { param: "trace" });
  }
  const known = syntheticRows.get(name);
  if (known) return known;
  const made = readTraceLines("synthetic trace", agentTraceLines(syntheticTrace), { format: "claude-code" });
  syntheticRows.set(name, made);
  return made;
}

/** Maximum distance from a step at which a time counts as rounded to it. */
const roundingMs = 5;

/** With fewer rows, times could lie on steps by chance. */
const minRowsToTell = 16;

/** Whether a trace has its times in steps of three seconds, as Mooncake's have. */
function isRounded(rows: readonly TraceRequest[]): boolean {
  if (rows.length < minRowsToTell || rows.at(-1)!.arrivalMs < mooncakeStepMs / 2) return false;
  return rows.every(({ arrivalMs, wait }) => {
    if (wait !== undefined) return false;
    const past = arrivalMs % mooncakeStepMs;
    return Math.min(past, mooncakeStepMs - past) <= roundingMs;
  });
}
