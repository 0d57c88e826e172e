import { type AnswerEnd, answerEnds, type FoundConversation } from "@espalier/api";
import {
  type Cancel,
  type Clock,
  LatencyWindow,
  type Meter,
  RecencyMap,
  readOrUndefined,
  type Scheduler,
  type Startable,
} from "@espalier/core";
import { closed, type Described, nullable, Type } from "@espalier/core/schema";
import type { RequestFeatures } from "@espalier/policies";
import type { MemoryWatch, PromptBlocks } from "@espalier/routing";
import type { Note, NoteChannel } from "@espalier/shared-tree";
import { Conversations } from "./conversations.ts";
import { readProgramNote, writeProgramNote } from "./program-note.ts";
import {
  forgetProgramMs,
  keyOf,
  type ProgramId,
  type ProgramRow,
  type ProgramStep,
  ProgramTable,
} from "./program-table.ts";

const programStates = ["queued", "running", "idle", "ended"] as const;
type ProgramState = (typeof programStates)[number];

const program = closed({
  name: Type.String({
    description: "Opaque name of the session, as in decisions, or of the conversation; the same at every router.",
  }),
  parent: nullable(Type.String(), {
    description: "Name of the program whose agent started it; null for none, and where that one is not known.",
  }),
  model: Type.String(),
  source: Type.String({ description: "The item of `session-key` that it is known by." }),
  tenant: nullable(Type.String()),
  state: Type.Union([
    Type.Literal("queued"),
    Type.Literal("running"),
    Type.Literal("idle", { description: "No request since its latest answer." }),
    Type.Literal("ended", { description: "Its client ended it." }),
  ]),
  engine: nullable(Type.String(), { description: "Engine of the latest request." }),
  queued: Type.Integer({ description: "Requests in routers' queues." }),
  running: Type.Integer({ description: "Requests at engines." }),
  steps: Type.Integer({ description: "Answered requests." }),
  failed: Type.Integer({ description: "Requests that failed, were refused or cut." }),
  answerEnd: nullable(Type.Unsafe<AnswerEnd>(Type.Enum([...answerEnds])), {
    description: "How the latest answer ended; null before one, and where the engine did not say it.",
  }),
  contextTokens: Type.Integer({ description: "Tokens of the latest prompt and its answer; 0 if unknown." }),
  cachedShare: nullable(Type.Number(), { description: "Cached share of all prompt tokens, by engines' reports." }),
  computedTokens: Type.Integer({ description: "Prompt tokens that engines computed." }),
  outputTokens: Type.Integer(),
  queuedMs: Type.Integer({ description: "Milliseconds in queues, over all requests." }),
  longestQueuedMs: Type.Integer({ description: "Milliseconds in the queue of the request that waited longest." }),
  ageMs: Type.Integer({ description: "Milliseconds since its first request." }),
  idleMs: Type.Integer({ description: "Milliseconds since its latest request began or ended." }),
});

const pause = closed({
  source: Type.String({ description: "As of programs." }),
  answerEnd: nullable(Type.Unsafe<AnswerEnd>(Type.Enum([...answerEnds]))),
  count: Type.Integer(),
  p50Ms: Type.Integer(),
  p95Ms: Type.Integer(),
});

export type Program = Described<typeof program>;
export type Pause = Described<typeof pause>;

export const programReport = closed(
  {
    programs: Type.Array(program, { description: "The latest 1,000, the most recently used first." }),
    counts: Type.Object(Object.fromEntries(programStates.map((state) => [state, Type.Integer()])), {
      description: "All known programs by state.",
    }),
    pauses: Type.Array(pause, {
      description:
        "Times from an answer to the program's next request, where this router served both, by how the answer ended.",
    }),
  },
  { title: "ProgramReport" },
);

export interface ProgramReport {
  readonly programs: readonly Program[];
  readonly counts: Readonly<Record<ProgramState, number>>;
  readonly pauses: readonly Pause[];
}

/** What names a request's program. */
interface ProgramRequest {
  readonly pool: { readonly model: string };
  readonly features: SessionOf;
  readonly sessionSource?: string | undefined;
  readonly parentKey?: string | undefined;
  /** Of a request without a session key. */
  readonly conversation?: FoundConversation | undefined;
  readonly prompt?: PromptBlocks | undefined;
  readonly service?: { readonly tenant: string } | undefined;
}

type SessionOf = Pick<RequestFeatures, "sessionKey" | "sessionScope">;

/** The programs of all routers. */
export interface Programs extends Startable {
  /** @returns undefined for a request without a session key or a conversation */
  begin(request: ProgramRequest): ProgramStep | undefined;
  /** Whether a conversation began with this, and nothing else has: see `findConversation`. */
  readonly isBeginning: (digest: number) => boolean;
  /** A session is over, whatever its models. @param within only in one scope: see `sessionScope` */
  endSession(sessionKey: string, within?: { readonly scope: string | undefined }): void;
  report(): ProgramReport;
}

interface ProgramsOptions {
  /** Learns whose prompts will not be continued; undefined while nobody asks it. */
  readonly memory: Pick<MemoryWatch, "keyOf" | "ended"> | undefined;
  /** The opaque name of a session; null without one. */
  readonly sessionName: (model: string, session: SessionOf) => string | null;
  /** Undefined when nothing is shared. */
  readonly notes: NoteChannel | undefined;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly meter: Meter;
}

/** Programs in a report. */
export const maxReportedPrograms = 1_000;
/** Interval at which changed programs are published. */
export const publishProgramsMs = 1_000;
/** Programs are published in so many notes, by their names, so that a change publishes few others again. */
const programNotes = 64;
/** Most notes of other routers that are kept, the latest ones. */
const maxPeerNotes = 4_096;
/** Bytes of a note. */
const maxNoteBytes = 16_384;
const noteKind = "programs";

export function createPrograms({ sessionName, memory, notes, clock, scheduler, meter }: ProgramsOptions): Programs {
  const table = new ProgramTable(clock);
  const conversations = new Conversations({
    ...{ notes, clock, scheduler },
    onContinued: (digest) => table.list(digest),
  });
  const nameOfKey = (sessionKey: string): string => sessionName("", { sessionKey, sessionScope: undefined })!;
  const peers = new RecencyMap<string, { readonly bytes: Uint8Array; readonly writtenMs: number }>();
  const changed = new Set<number>();
  table.onChange = (name) => void changed.add(noteOf(name));
  const gauge = meter.gauge(
    "espalier_programs",
    "Programs of this router's requests in the last 30 minutes, by state.",
    ["state"],
  );
  const pauses = createPauses(meter);
  table.onPause = pauses.add;
  const series = programStates.map((state) => [state, gauge.series(state)] as const);
  const forgetPrompt = ({ promptKey }: ProgramRow): void => {
    if (promptKey > 0) memory?.ended(promptKey);
  };
  const hear = ({ key, origin, bytes, ageMs }: Note): void => {
    if (!key.startsWith(`${noteKind}/`)) return;
    peers.set(`${origin.router}/${key}`, { bytes, writtenMs: clock.nowMs() - ageMs });
    if (peers.size > maxPeerNotes) peers.deleteOldest();
    if (memory)
      for (const row of readOrUndefined(() => readProgramNote(bytes)) ?? []) if (row.isOver) forgetPrompt(row);
  };
  function* peerRows(): Generator<ProgramRow, void, undefined> {
    for (const { bytes, writtenMs } of peers.values()) {
      const ageMs = clock.nowMs() - writtenMs;
      for (const row of readOrUndefined(() => readProgramNote(bytes)) ?? []) {
        const aged = { ...row, ageMs: row.ageMs + ageMs, idleMs: row.idleMs + ageMs };
        if (aged.idleMs < forgetProgramMs) yield aged;
      }
    }
  }
  /** All rows of such a note are forgotten. */
  const isPast = ({ writtenMs }: { readonly writtenMs: number }): boolean =>
    clock.nowMs() - writtenMs >= forgetProgramMs;
  const publish = (): void => {
    table.forget();
    for (let oldest = peers.oldest(); oldest && isPast(oldest[1]); oldest = peers.oldest()) peers.deleteOldest();
    const rows = [...table.rows()];
    const counts = countStates(rows);
    for (const [state, of] of series) of.set(counts[state]);
    const byNote = notes && changed.size > 0 ? Map.groupBy(rows, ({ name }) => noteOf(name)) : undefined;
    for (const [number, written] of byNote ?? []) {
      if (changed.has(number)) notes!.post(`${noteKind}/${number}`, writeProgramNote(written, maxNoteBytes));
    }
    changed.clear();
  };
  const beginConversation = ({ digest, isContinued }: FoundConversation, idOf: () => ProgramId): ProgramStep => {
    if (isContinued) {
      conversations.continued(digest);
      table.list(digest);
      return table.begin(idOf(), 0);
    }
    conversations.begun(digest);
    const step = table.beginFirst(digest, idOf);
    return {
      sent: (engine) => step.sent(engine),
      ended: (end) => {
        if (!end.isAnswered) conversations.failed(digest);
        step.ended(end);
      },
    };
  };
  let cancels: readonly Cancel[] = [];
  return {
    isBeginning: (digest) => conversations.isBeginning(digest),
    begin({
      pool: { model },
      features: { sessionKey, sessionScope },
      parentKey,
      conversation,
      prompt,
      sessionSource: source = "",
      service,
    }) {
      const tenant = service?.tenant ?? "";
      const idOf = (key: string): ProgramId => ({
        name: sessionName(model, { sessionKey: key, sessionScope })!,
        session: nameOfKey(key),
        parent: parentKey === undefined ? "" : nameOfKey(parentKey),
        model,
        source,
        tenant,
      });
      if (sessionKey) return table.begin(idOf(sessionKey), (prompt && memory?.keyOf(prompt)) ?? 0);
      return conversation && beginConversation(conversation, () => idOf(keyOfConversation(conversation)));
    },
    endSession(sessionKey, within) {
      const session = nameOfKey(sessionKey);
      const isMeant = ({ model, name }: ProgramRow): boolean =>
        !within || name === sessionName(model, { sessionKey, sessionScope: within.scope });
      for (const row of merged([...table.rows(), ...peerRows()])) {
        if (row.session !== session || !isMeant(row)) continue;
        forgetPrompt(row);
        table.end(row);
      }
    },
    report() {
      const all = merged([...table.rows(), ...peerRows()]).sort((one, other) => one.idleMs - other.idleMs);
      const parentOf = parentsIn(all);
      return {
        programs: all.slice(0, maxReportedPrograms).map((row) => describe(row, parentOf(row))),
        counts: countStates(all),
        pauses: pauses.report(),
      };
    },
    async start() {
      conversations.start();
      cancels = [scheduler.every(publishProgramsMs, publish), notes?.onNote(hear) ?? (() => {})];
    },
    async stop() {
      conversations.stop();
      for (const cancel of cancels) cancel();
    },
  };
}

/** Upper bounds in seconds: tools answer within one, people within minutes. */
const pauseBuckets = [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1_000];
/** Sources with learned pauses: as many as `session-key` may have. */
export const maxPauseSources = 33;

function createPauses(meter: Meter) {
  const histogram = meter.histogram(
    "espalier_program_pause_seconds",
    "Time from an answer to the next request of its program, where this router served both, by what the program is known by and how the answer ended.",
    pauseBuckets,
    ["source", "end"],
  );
  const createEntry = (source: string, answerEnd: AnswerEnd | undefined) => ({
    series: histogram.series(source, answerEnd ?? "unknown"),
    times: new LatencyWindow(),
    count: 0,
  });
  const learned = new Map<string, Map<AnswerEnd | undefined, ReturnType<typeof createEntry>>>();
  return {
    add(source: string, answerEnd: AnswerEnd | undefined, ms: number): void {
      let bySource = learned.get(source);
      if (!bySource) {
        if (learned.size === maxPauseSources) return;
        bySource = new Map();
        learned.set(source, bySource);
      }
      const entry = bySource.get(answerEnd) ?? createEntry(source, answerEnd);
      bySource.set(answerEnd, entry);
      entry.count += 1;
      entry.times.add(ms);
      entry.series.observe(ms / 1_000);
    },
    report(): readonly Pause[] {
      return [...learned].flatMap(([source, ends]) =>
        [...ends].map(([answerEnd = null, { count, times }]) => ({
          ...{ source, answerEnd, count },
          p50Ms: Math.round(times.quantileMs(0.5)),
          p95Ms: Math.round(times.quantileMs(0.95)),
        })),
      );
    },
  };
}

/** What is a session key to a conversation without one. */
export const keyOfConversation = ({ digest }: FoundConversation): string => (digest >>> 0).toString(16);

/** The note that a program is in. Names are eight hexadecimal digits. */
const noteOf = (name: string): number => Number.parseInt(name.slice(0, 2), 16) % programNotes;

/** One row for each program, of what routers know of it. */
function merged(rows: readonly ProgramRow[]): ProgramRow[] {
  const byKey = new Map<string, ProgramRow>();
  for (const row of rows) {
    const known = byKey.get(keyOf(row));
    byKey.set(keyOf(row), known ? sumOf(known, row) : row);
  }
  return [...byKey.values()];
}

function sumOf(one: ProgramRow, other: ProgramRow): ProgramRow {
  const [latest, earlier] = one.idleMs <= other.idleMs ? [one, other] : [other, one];
  return {
    ...latest,
    engine: latest.engine || earlier.engine,
    answerEnd: latest.answerEnd ?? earlier.answerEnd,
    contextTokens: latest.contextTokens || earlier.contextTokens,
    promptKey: latest.promptKey || earlier.promptKey,
    queued: one.queued + other.queued,
    running: one.running + other.running,
    steps: one.steps + other.steps,
    failed: one.failed + other.failed,
    promptTokens: one.promptTokens + other.promptTokens,
    cachedTokens: one.cachedTokens + other.cachedTokens,
    outputTokens: one.outputTokens + other.outputTokens,
    queuedMs: one.queuedMs + other.queuedMs,
    longestQueuedMs: Math.max(one.longestQueuedMs, other.longestQueuedMs),
    ageMs: Math.max(one.ageMs, other.ageMs),
  };
}

function stateOf({ queued, running, isOver }: ProgramRow): ProgramState {
  if (running > 0) return "running";
  if (queued > 0) return "queued";
  return isOver ? "ended" : "idle";
}

function countStates(rows: readonly ProgramRow[]): Record<ProgramState, number> {
  const counts = { queued: 0, running: 0, idle: 0, ended: 0 };
  for (const row of rows) counts[stateOf(row)] += 1;
  return counts;
}

/** Finds the name of a program's parent: by its session and tenant, and of its own model before another one. */
function parentsIn(rows: readonly ProgramRow[]): (row: ProgramRow) => string | null {
  const bySession = Map.groupBy(rows, ({ session, tenant }) => `${session}\n${tenant}`);
  return ({ parent, tenant, model }) => {
    const found = parent === "" ? undefined : bySession.get(`${parent}\n${tenant}`);
    return (found?.find((one) => one.model === model) ?? found?.[0])?.name ?? null;
  };
}

function describe(row: ProgramRow, parent: string | null): Program {
  const { promptTokens, cachedTokens } = row;
  return {
    name: row.name,
    parent,
    model: row.model,
    source: row.source,
    tenant: row.tenant || null,
    state: stateOf(row),
    engine: row.engine || null,
    queued: row.queued,
    running: row.running,
    steps: row.steps,
    failed: row.failed,
    answerEnd: row.answerEnd ?? null,
    contextTokens: row.contextTokens,
    cachedShare: promptTokens > 0 ? cachedTokens / promptTokens : null,
    computedTokens: promptTokens - cachedTokens,
    outputTokens: row.outputTokens,
    queuedMs: Math.round(row.queuedMs),
    longestQueuedMs: Math.round(row.longestQueuedMs),
    ageMs: Math.round(row.ageMs),
    idleMs: Math.round(row.idleMs),
  };
}
