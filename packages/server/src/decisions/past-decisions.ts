import { deflateRawSync, inflateRawSync } from "node:zlib";
import {
  bytes,
  type Cancel,
  EspalierError,
  type Random,
  readOrUndefined,
  type Scheduler,
  type Startable,
  struct,
  varint,
  versioned,
} from "@espalier/core";
import { closed, type Described, nullable, Type } from "@espalier/core/schema";
import { type PolicyName, policyCatalogue } from "@espalier/policies";
import { type DecisionLog, keptDecisions, type LoggedDecision } from "@espalier/routing";
import type { Note, NoteChannel } from "@espalier/shared-tree";
import { type DescribedDecision, describedDecision } from "./decision-feed.ts";

const pastDecision = closed({
  summary: Type.String({ description: "Decision in one sentence." }),
  ...describedDecision.properties,
  comparedCount: Type.Integer({ description: "Number of compared candidates." }),
  candidates: Type.Array(
    closed({
      key: Type.String(),
      cost: nullable(Type.Number(), { description: "Cost in the policy's unit; lower is better." }),
      matchedTokens: Type.Number(),
      inFlight: Type.Number(),
      pendingPrefillTokens: Type.Number(),
      networkMs: Type.Optional(
        nullable(Type.Number(), {
          description:
            "Round trip to the engine, in milliseconds; null if unknown, absent in answers of earlier versions.",
        }),
      ),
    }),
    { description: "Chosen candidate and up to 15 others with the lowest costs." },
  ),
  excluded: Type.Array(closed({ key: Type.String(), reason: Type.String() }), {
    description: "Up to 16 excluded targets, each with the reason or the policy filter.",
  }),
  excludedCount: Type.Integer({ description: "Number of excluded targets." }),
});

type PastDecision = Described<typeof pastDecision>;

/** What was decided about a request: the answer of `GET /admin/requests/{id}`. */
export const pastRequest = closed(
  {
    requestId: Type.String(),
    router: nullable(Type.String(), { description: "Router that decided." }),
    decisions: Type.Array(pastDecision, { description: "Decision of each attempt, earliest first, at most 8." }),
  },
  { title: "PastRequest" },
);

export type PastRequest = Described<typeof pastRequest>;

/** Finds decisions by request id: this router's own, and those of the routers in its mesh. */
export interface PastDecisions extends Startable {
  /** @throws EspalierError `decision_not_found`, or `overloaded` while too many others are looked for */
  find(requestId: string): Promise<PastRequest>;
}

export interface PastDecisionsOptions {
  readonly log: Pick<DecisionLog<DescribedDecision>, "find">;
  /** This router's id in the mesh; null when it shares nothing. */
  readonly router: string | null;
  /** Carries questions and answers; undefined when nothing is shared. */
  readonly notes: NoteChannel | undefined;
  readonly members: () => readonly { readonly state: string }[];
  readonly random: Random;
  readonly scheduler: Scheduler;
}

/** How long other routers are waited for. */
export const answerWithinMs = 1_000;
/** Most requests that are looked for at other routers at a time. */
export const maxOpenQuestions = 16;
/** Most bytes of an answer; of one with more, the latest attempts count. */
const maxAnswerBytes = 16_000;
/** Largest answer after decompression. */
const maxInflatedBytes = 262_144;
/** Longest request id that other routers are asked for. */
const maxIdBytes = 128;

/** Keys of the notes. A question and its answer are sent at once; what is sent again later finds nobody who waits. */
const questionKey = "question";
const answerKey = "answer";
const noteVersion = 1;

export function createPastDecisions(options: PastDecisionsOptions): PastDecisions {
  const { log, router, notes, members, random, scheduler } = options;
  const waiting = new Map<number, (found: PastRequest | undefined) => void>();
  const own = (requestId: string): PastRequest | undefined => {
    const decisions = log.find(requestId).map(describePast);
    return decisions.length === 0 ? undefined : { requestId, router, decisions };
  };
  const hear = ({ key, bytes, ageMs }: Note): void => {
    if (ageMs > answerWithinMs) return;
    if (key === questionKey) {
      const { number, rest } = readOrUndefined(() => note.decode(bytes)) ?? {};
      const found = rest && own(Buffer.from(rest).toString("utf8"));
      if (number !== undefined && found) notes?.post(answerKey, note.encode({ number, rest: pack(found) }));
    } else if (key === answerKey) {
      const { number, rest } = readOrUndefined(() => note.decode(bytes)) ?? {};
      const found = rest && number !== undefined && waiting.has(number) ? unpack(rest) : undefined;
      if (found) waiting.get(number!)?.(found);
    }
  };
  let cancel: Cancel = () => {};
  const askOthers = async (requestId: string): Promise<PastRequest | undefined> => {
    const id = Buffer.from(requestId);
    const isAnyoneThere = members().some(({ state }) => state === "alive" || state === "suspect");
    if (!notes || !isAnyoneThere || id.length > maxIdBytes) return undefined;
    if (waiting.size >= maxOpenQuestions) throw new EspalierError("overloaded");
    const number = random.integer(2 ** 32);
    const found = await new Promise<PastRequest | undefined>((resolve) => {
      waiting.set(number, resolve);
      const giveUp = scheduler.after(answerWithinMs, () => resolve(undefined));
      waiting.set(number, (answer) => {
        giveUp();
        resolve(answer);
      });
      if (!notes.post(questionKey, note.encode({ number, rest: id }))) waiting.get(number)?.(undefined);
    });
    waiting.delete(number);
    return found;
  };
  return {
    async find(requestId) {
      const found = own(requestId) ?? (await askOthers(requestId));
      if (found) return found;
      throw new EspalierError(
        "decision_not_found",
        `Not found: older than the latest ${keptDecisions} decisions, made by a router that is gone or unreachable, or ` +
          "refused before an engine was chosen.",
      );
    },
    async start() {
      cancel = notes?.onNote(hear) ?? cancel;
    },
    async stop() {
      cancel();
      for (const end of waiting.values()) end(undefined);
    },
  };
}

/** A question or an answer: the question's number, and the id that is asked for, or the answer. */
const note = versioned(noteVersion, struct({ number: varint(), rest: bytes(maxAnswerBytes) }));

export const questionNoteLayout = note.layout;

/** JSON, deflated. */
function pack(found: PastRequest): Uint8Array {
  const packed = deflateRawSync(JSON.stringify(found));
  const { decisions } = found;
  if (packed.length <= maxAnswerBytes || decisions.length <= 1) return packed;
  return pack({ ...found, decisions: decisions.slice(1) });
}

/** @returns undefined for an answer that cannot be read */
function unpack(bytes: Uint8Array): PastRequest | undefined {
  try {
    const read: unknown = JSON.parse(inflateRawSync(bytes, { maxOutputLength: maxInflatedBytes }).toString("utf8"));
    return typeof read === "object" && read !== null && "decisions" in read ? (read as PastRequest) : undefined;
  } catch {
    return undefined;
  }
}

function describePast({ facts, ...logged }: LoggedDecision<DescribedDecision>): PastDecision {
  const { candidates, comparedCount, excluded } = logged;
  return { summary: summaryOf(facts, candidates, comparedCount, excluded), ...facts, ...logged };
}

const counting = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** For example "b was chosen over a: it held 1,184 of 1,240 tokens, the other none, and was 38 ms sooner (least_time)." */
function summaryOf(
  facts: DescribedDecision,
  candidates: PastDecision["candidates"],
  comparedCount: number,
  excluded: PastDecision["excluded"],
): string {
  const { target, reason, prefillEngine, attempt, pull } = facts;
  const [chosen, ...others] = candidates;
  const other = rivalOf(chosen, others);
  const attempted = attempt > 1 ? `At attempt ${attempt}, ` : "";
  if (prefillEngine !== null && prefillEngine !== target) {
    return `${attempted}${prefillEngine} was chosen to compute the prompt, and ${target} to answer (${reason}).`;
  }
  if (!chosen || !other) return `${attempted}${target} was the only candidate (${reason})${besides(excluded)}.`;
  if (chosen.cost === null || other.cost === null) {
    return `${attempted}${target} was chosen of ${comparedCount} candidates, without comparing costs (${reason}).`;
  }
  const over = comparedCount === 2 ? other.key : `${other.key} and ${comparedCount - 2} more`;
  const pulled = pull ? ` It fetched ${counting.format(pull.tokens)} tokens from ${pull.from}.` : "";
  const held = heldBy(facts.promptTokens, chosen.matchedTokens, other.matchedTokens);
  return `${attempted}${target} was chosen over ${over}: ${held}, ${costOf(facts, chosen.cost, other.cost)} (${reason}).${pulled}`;
}

type Candidate = PastDecision["candidates"][number];

/** Whom to compare with: who holds most, if that is more than the chosen one does, else the next by cost. */
function rivalOf(chosen: Candidate | undefined, others: readonly Candidate[]): Candidate | undefined {
  const most = others.reduce<Candidate | undefined>(
    (best, each) => (each.matchedTokens > (best?.matchedTokens ?? 0) ? each : best),
    undefined,
  );
  return most && chosen && most.matchedTokens > chosen.matchedTokens ? most : others[0];
}

/** For example ": b was left out (class_partition)". */
function besides([first, ...more]: PastDecision["excluded"]): string {
  if (!first) return "";
  return `: ${first.key} was excluded (${first.reason})${more.length > 0 ? `, and ${more.length} more` : ""}`;
}

function heldBy(promptTokens: number, held: number, byOther: number): string {
  if (held === 0 && byOther === 0) return `no engine held any of the ${counting.format(promptTokens)} tokens`;
  const shown = (tokens: number): string => (tokens === 0 ? "none" : counting.format(Math.min(tokens, promptTokens)));
  return `it held ${shown(held)} of ${counting.format(promptTokens)} tokens, the other ${shown(byOther)}`;
}

function costOf({ policy }: DescribedDecision, cost: number, other: number): string {
  if (!policyCatalogue[policy as PolicyName]?.costsAreMs) {
    return `${cost <= other ? "and" : "though it"} cost ${rounded(cost)} against ${rounded(other)}`;
  }
  const soonerMs = Math.round(other - cost);
  if (soonerMs === 0) return "and was equally soon";
  return soonerMs > 0
    ? `and was ${counting.format(soonerMs)} ms sooner`
    : `though it was ${counting.format(-soonerMs)} ms later`;
}

function rounded(value: number): string {
  return String(Number(value.toPrecision(4)));
}
