import { formatCount, formatShort, formatSpan } from "./format.ts";
import { asNumber, asNumberOrNull, asObject, asText, asTextOrNull, listOf, objectOf } from "./read-json.ts";

export const programStates = ["queued", "running", "idle", "ended"] as const;

export type ProgramState = (typeof programStates)[number];

/** What a state means. */
export const stateMeaning: Readonly<Record<ProgramState, string>> = {
  queued: "waiting for an engine",
  running: "being answered by an engine",
  idle: "between two steps",
  ended: "ended by its client",
};

/** The requests of one session, or of one agent in it, to one model, over all routers. */
export type ProgramRow = ReturnType<typeof readProgram>;

const readProgram = objectOf({
  /** Opaque; the name of the session in decisions. */
  name: asText,
  model: asText,
  /** Where its session key comes from. */
  source: asText,
  tenant: asTextOrNull,
  state: (state) => programStates.find((one) => one === state) ?? "idle",
  /** Of its latest request. */
  engine: asTextOrNull,
  /** Name of the program whose agent started it. */
  parent: asTextOrNull,
  /** How the latest answer ended; null before one, and where the engine did not say it. */
  answerEnd: asTextOrNull,
  queued: asNumber,
  running: asNumber,
  steps: asNumber,
  failed: asNumber,
  contextTokens: asNumber,
  cachedShare: asNumberOrNull,
  computedTokens: asNumber,
  outputTokens: asNumber,
  queuedMs: asNumber,
  longestQueuedMs: asNumber,
  ageMs: asNumber,
  idleMs: asNumber,
});

/** Times from an answer to the next request, of programs that are known by one source. */
export type PauseRow = ReturnType<typeof readPause>;

const readPause = objectOf({
  source: asText,
  answerEnd: asTextOrNull,
  count: asNumber,
  p50Ms: asNumber,
  p95Ms: asNumber,
});

/** `tool calls`; `unknown` where the engine did not say it. */
export const endName = (answerEnd: string | null): string => answerEnd?.replaceAll("_", " ") ?? "unknown";

export type ProgramCounts = Readonly<Record<ProgramState, number>>;

export interface ProgramReport {
  readonly programs: readonly ProgramRow[];
  /** All known programs, also those that are not listed. */
  readonly counts: ProgramCounts;
  /** Of the router that is read, the most frequent first. */
  readonly pauses: readonly PauseRow[];
}

/** @param report of `GET /admin/programs` */
export function readPrograms(report: unknown): ProgramReport {
  const { programs, counts, pauses } = asObject(report);
  const known = asObject(counts);
  const count = (state: ProgramState): number => asNumber(known[state]);
  return {
    programs: listOf(readProgram)(programs),
    counts: { queued: count("queued"), running: count("running"), idle: count("idle"), ended: count("ended") },
    pauses: [...listOf(readPause)(pauses)].sort((one, other) => other.count - one.count),
  };
}

export const totalOf = (counts: ProgramCounts): number => programStates.reduce((sum, state) => sum + counts[state], 0);

/** The columns by which programs are sorted. */
export type ProgramOrder =
  | ("name" | "state" | "steps" | "context" | "cached" | "computed" | "waited" | "longest" | "age" | "used")
  | ("engine" | "model" | "parent" | "tenant" | "source");

export interface ProgramView {
  readonly by: ProgramOrder;
  readonly isDescending: boolean;
  /** Undefined for all. */
  readonly state: ProgramState | undefined;
  /** Words that a row has to have: parts of its name, model, parent, tenant, engine or source. */
  readonly query: string;
}

const textOf: Readonly<Partial<Record<ProgramOrder, (row: ProgramRow) => string>>> = {
  name: ({ name }) => name,
  engine: ({ engine }) => engine ?? "",
  model: ({ model }) => model,
  parent: ({ parent }) => parent ?? "",
  tenant: ({ tenant }) => tenant ?? "",
  source: ({ source }) => source,
};

const figureOf: Readonly<Partial<Record<ProgramOrder, (row: ProgramRow) => number>>> = {
  // Those that wait first, when sorted from the top.
  state: ({ state }) => -programStates.indexOf(state),
  steps: ({ steps }) => steps,
  context: ({ contextTokens }) => contextTokens,
  cached: ({ cachedShare }) => cachedShare ?? -1,
  computed: ({ computedTokens }) => computedTokens,
  waited: ({ queuedMs }) => queuedMs,
  longest: ({ longestQueuedMs }) => longestQueuedMs,
  age: ({ ageMs }) => ageMs,
  // The latest first, when sorted from the top.
  used: ({ idleMs }) => -idleMs,
};

/** Whether a column is of figures, which are looked at from the largest one. */
export const isFigure = (by: ProgramOrder): boolean => figureOf[by] !== undefined;

/** The rows that are looked for, sorted; equal ones by their latest use. */
export function viewedPrograms(
  rows: readonly ProgramRow[],
  { by, isDescending, state, query }: ProgramView,
): readonly ProgramRow[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const found = rows.filter((row) => {
    if (state !== undefined && row.state !== state) return false;
    const text = Object.values(textOf)
      .map((of) => of(row))
      .join(" ")
      .toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const sign = isDescending ? -1 : 1;
  const [figure, text] = [figureOf[by], textOf[by]];
  const compare = (one: ProgramRow, other: ProgramRow): number => {
    if (figure) return figure(one) - figure(other);
    return text ? text(one).localeCompare(text(other), "en", { numeric: true }) : 0;
  };
  return found.sort((one, other) => sign * compare(one, other) || one.idleMs - other.idleMs);
}

/** One line on the rows that are shown. */
export function programsNote(shown: readonly ProgramRow[], { programs, counts }: ProgramReport): string {
  if (programs.length === 0) return "";
  const sum = (of: (row: ProgramRow) => number): number => shown.reduce((total, row) => total + of(row), 0);
  const longestMs = Math.max(0, ...shown.map(({ longestQueuedMs }) => longestQueuedMs));
  const listed = shown.length === totalOf(counts) ? "" : `${formatCount(shown.length)} shown`;
  return [
    listed,
    `${formatShort(sum(({ computedTokens }) => computedTokens))} tokens computed`,
    formatSpan(longestMs) === "0" ? "no waits" : `longest wait ${formatSpan(longestMs)}`,
  ]
    .filter(Boolean)
    .join(" · ");
}
