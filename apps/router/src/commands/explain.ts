import { layOutTable, type TableColumn, wrapText } from "@espalier/core";
import type { PastRequest as Answered, Explanation } from "@espalier/server";
import type { Command } from "commander";
import { type AdminOptions, addAdminOptions, askAdmin } from "../cli/admin-client.ts";
import { collect, readInput, UsageError } from "../cli/read-flags.ts";
import { groupDigits, writeJson, writeResult } from "../output.ts";
import { addCommand } from "./command-list.ts";

interface ExplainFlags extends AdminOptions {
  readonly file?: string;
  readonly requestId?: string;
  readonly endpoint?: string;
  readonly header: readonly string[];
}

/** Headers of the admin request itself, not of the request to explain. */
const ownHeaders = ["authorization", "connection", "content-length", "content-type", "host", "transfer-encoding"];

export function registerExplain(program: Command): void {
  const command = addCommand(program, "explain")
    .description(
      "Plans a request on a running router without sending it to an engine: every candidate with its cost terms, " +
        "load and known prompt blocks, and the excluded engines with the reason. " +
        "The plan changes no later decision. With --request-id, explains the decision of any router of the mesh about " +
        "a past request: one sentence, and the candidates with their costs.",
    )
    .option("--request-id <id>", "x-request-id of a past answer")
    .option("--file <file>", "request body; - reads standard input")
    .option("--endpoint <name>", "chat, completions, messages, responses, or a path (default: guessed from the body)")
    .option("--header <name: value>", "request header, such as `x-session-id: 7`; repeatable", collect, []);
  addAdminOptions(command).action(explain);
}

async function explain(flags: ExplainFlags): Promise<void> {
  const { file, requestId, endpoint, header, json } = flags;
  if ((file === undefined) === (requestId === undefined)) throw new UsageError("pass either --file or --request-id");
  if (file === undefined) {
    if (endpoint !== undefined || header.length > 0)
      throw new UsageError("--request-id excludes --endpoint and --header");
    const past = await askAdmin<PastRequest>(flags, `/admin/requests/${encodeURIComponent(requestId!)}`);
    if (json) writeJson(past);
    else writeResult(describePast(past));
    return;
  }
  const headers = Object.fromEntries(header.map(readHeader));
  const body = { method: "POST", json: readInput(file, "--file"), headers } as const;
  const query = endpoint === undefined ? "" : `?endpoint=${encodeURIComponent(endpoint)}`;
  const report = await askAdmin<ExplainReport>(flags, `/admin/explain${query}`, body);
  if (json) writeJson(report);
  else writeResult(describeExplanation(report));
  if (report.choice === null) process.exitCode = 1;
}

/** @throws UsageError for text that is not a header, and for headers that do not belong to the request */
function readHeader(text: string): readonly [name: string, value: string] {
  const [, name = "", value = ""] = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e]*)$/.exec(text) ?? [];
  if (name === "") throw new UsageError(`--header must be NAME: VALUE, not ${JSON.stringify(text)}`);
  if (ownHeaders.includes(name.toLowerCase())) throw new UsageError(`--header cannot set ${name.toLowerCase()}`);
  return [name.toLowerCase(), value];
}

type Candidate = Explanation["candidates"][number];
type LoadFigures = Pick<Candidate["load"]["own"], "inFlight" | "pendingPrefillTokens">;
type Facts = NonNullable<Candidate["facts"]>;
type Feed = Pick<NonNullable<Facts["feed"]>, "state" | "readBy" | "epoch" | "ageMs" | "lagMs">;
type PoolFacts = Pick<NonNullable<Candidate["pools"]>[number], "pool" | "blocks">;
type CandidateFigures =
  | "key"
  | "eligible"
  | "filteredBy"
  | "probability"
  | "cost"
  | "scores"
  | "terms"
  | "signals"
  | "fetches"
  | "placement";

/** The displayed part of a candidate. Ages in milliseconds. */
interface CandidateRow extends Pick<Candidate, CandidateFigures> {
  readonly load: { readonly own: LoadFigures; readonly others: (LoadFigures & { readonly ageMs: number }) | null };
  readonly facts:
    | (Pick<Facts, "blocks" | "heldBlocks"> & { readonly quality: string; readonly feed: Feed | null })
    | null;
  readonly pools: readonly (PoolFacts & { readonly quality: string })[] | null;
}

type Split = NonNullable<Explanation["split"]>;
type NotShown = "expectedOutputTokens" | "memory" | "overflow";

/** The displayed part of the answer of `POST /admin/explain`. */
export interface ExplainReport extends Omit<Explanation, NotShown | "split" | "candidates"> {
  readonly split: (Omit<Split, "reason"> & { readonly reason: string }) | null;
  readonly candidates: readonly CandidateRow[];
}

type Decision = Answered["decisions"][number];
type PastCandidate = Decision["candidates"][number];
type DecisionFigures = "summary" | "atMs" | "endpoint" | "model" | "policy" | "target" | "class" | "queuedMs";

/** The displayed part of the answer of `GET /admin/requests/{id}`. */
export interface PastRequest extends Omit<Answered, "decisions"> {
  readonly decisions: readonly Pick<
    Decision,
    DecisionFigures | "comparedCount" | "candidates" | "excluded" | "excludedCount"
  >[];
}

const pastColumns: readonly TableColumn<PastCandidate>[] = [
  { header: "candidate", value: ({ key }) => key },
  { header: "cost", value: ({ cost }) => number(cost) },
  { header: "held (tokens)", value: ({ matchedTokens }) => matchedTokens },
  { header: "in flight", value: ({ inFlight }) => inFlight },
  { header: "to prefill (tokens)", value: ({ pendingPrefillTokens }) => pendingPrefillTokens },
];

const pastNetworkColumn: TableColumn<PastCandidate> = {
  header: "network (ms)",
  value: ({ networkMs }) => networkMs ?? undefined,
  digits: 1,
};

/** Says what was decided about a request and why, for people. */
export function describePast({ router, decisions }: PastRequest): string {
  const parts = decisions.flatMap(
    ({ summary, atMs, endpoint, model, policy, queuedMs, comparedCount, ...decision }) => {
      const { candidates, class: className, excluded = [], excludedCount } = decision;
      const queued = queuedMs > 0 ? `, after ${queuedMs} ms in the queue` : "";
      const lines = [
        `decided   ${new Date(atMs).toISOString()}${router === null ? "" : ` by ${router}`}${queued}`,
        `request   ${endpoint}, model ${model}${className === null ? "" : `, class ${className}`}`,
        `policy    ${policy}`,
      ];
      const left = comparedCount - candidates.length;
      const isAnyKnown = candidates.some(({ networkMs }) => typeof networkMs === "number");
      return [
        `${wrapText(summary, 0)}\n`,
        `${wrapText(lines.join("\n"), labelColumns)}\n`,
        ...(candidates.length > 0
          ? [layOutTable(candidates, isAnyKnown ? [...pastColumns, pastNetworkColumn] : pastColumns)]
          : []),
        ...(left > 0 ? [`${left} more candidates had higher costs\n`] : []),
        ...describeExcluded(
          excluded.map(({ key, reason }) => ({ key, reasons: [reason] })),
          excludedCount,
        ),
      ];
    },
  );
  return parts.join("\n");
}

/** @param count how many there were, those that are not listed included */
function describeExcluded(excluded: Explanation["excluded"], count = excluded.length): readonly string[] {
  if (excluded.length === 0) return [];
  const lines = excluded.map(({ key, reasons }) => `  ${key}: ${reasons.join("; ")}`);
  if (count > excluded.length) lines.push(`  and ${count - excluded.length} more`);
  return [`excluded\n${wrapText(lines.join("\n"), 4)}\n`];
}

/** Says which engine would get a request and why, for people. */
export function describeExplanation(report: ExplainReport): string {
  const { candidates, choice, prompt, excluded } = report;
  const parts = [heading(report)];
  if (candidates.length > 0) {
    parts.push(layOutTable(candidates, [...judgement(report), ...termColumns(report)]));
    parts.push(
      layOutTable(candidates, [
        { header: "load", value: ({ key }) => key },
        ...loadColumns,
        ...networkColumns(candidates),
      ]),
    );
    if (prompt.blocks !== null) {
      parts.push(
        layOutTable(candidates, [
          { header: "known blocks", value: ({ key }) => key },
          ...knownColumns,
          ...heldColumns(candidates),
          ...poolColumns(candidates),
        ]),
      );
    }
  }
  parts.push(...describeExcluded(excluded));
  if (choice === null) parts.push("no engine can take the request\n");
  return parts.join("\n");
}

/** The prefix of the lines. */
const labelColumns = 10;

function heading(report: ExplainReport): string {
  const { router, endpoint, model, policy, reason, choice, sessionKey, sessionSource, prompt, estimatedPeerTokens } =
    report;
  const unread = prompt.unread === null ? "" : `, ${prompt.unread} has an unknown layout`;
  const blocks = prompt.blocks === null ? "not looked up" : `${prompt.blocks} blocks of ${prompt.blockSize}`;
  const chance = choice !== null && choice.probability < 1 ? ` (likeliest, ${percent(choice.probability)})` : "";
  const source = sessionSource === null ? "" : ` (${sessionSource.replace(":", " ")})`;
  const session = sessionKey === null ? "" : `, session ${sessionKey}${source}`;
  const lines = [
    `choice    ${choice === null ? "none" : `${choice.key}${chance}: ${reason}`}`,
    `request   ${endpoint}, model ${model}${session}`,
    `prompt    ${prompt.tokens} tokens (${how(prompt.from)}${unread}), ${blocks}`,
    `policy    ${policy}${router === null ? "" : `, at router ${router}`}`,
  ];
  if (estimatedPeerTokens > 0) {
    lines.push(`peers     ${Math.round(estimatedPeerTokens)} tokens: estimated peer load, not yet reported`);
  }
  const { pull } = report;
  if (pull) {
    const beside = `${Math.round(pull.ms)} ms beside ${Math.round(pull.computeMs)} to compute`;
    lines.push(`pull      fetches ${groupDigits(pull.tokens)} tokens from ${pull.from}: ${beside}`);
  }
  lines.push(...fetchLines(report));
  return `${wrapText([...lines, ...splitAndService(report)].join("\n"), labelColumns)}\n`;
}

/** What the chosen engine would fetch from slower memory and from pools. */
function fetchLines({ choice, candidates }: ExplainReport): readonly string[] {
  const fetches = candidates.find(({ key }) => key === choice?.key)?.fetches ?? [];
  return fetches.map(({ from, tokens, ms }) => {
    const time = ms === null ? "time not learned yet" : `${Math.round(ms)} ms`;
    return `fetch     from ${from}: ${groupDigits(tokens)} tokens, ${time}`;
  });
}

/** The split between two engines, and the class of service. */
function splitAndService({ split, service }: ExplainReport): readonly string[] {
  const lines: string[] = [];
  if (split?.pair) {
    const { protocol, prefill, decode } = split.pair;
    lines.push(`split     ${prefill} computes the prompt, ${decode} answers, by ${protocol}: ${split.reason}`);
  } else if (split) lines.push(`split     not: ${split.reason}`);
  if (service) {
    const due = service.deadlineMs === null ? "" : `, first token due within ${service.deadlineMs} ms`;
    lines.push(`class     ${service.class}${service.tenant === "" ? "" : ` of ${service.tenant}`}${due}`);
    if (service.isQueued) lines.push("queue     the request would wait; the choice assumes its turn is now");
  }
  return lines;
}

const knownBy: Readonly<Record<string, string>> = {
  tokens: "counted",
  partial: "counted in part",
  bytes: "by its bytes",
  size: "by its size",
};

function how(from: string): string {
  return knownBy[from] ?? from;
}

function judgement({ choice }: ExplainReport): readonly TableColumn<CandidateRow>[] {
  return [
    { header: "", value: ({ key }) => (key === choice?.key ? "->" : " ") },
    { header: "candidate", value: ({ key }) => key },
    {
      header: "chance",
      value: ({ probability, eligible, filteredBy }) => (eligible ? percent(probability) : (filteredBy ?? "filtered")),
    },
    { header: "cost", value: ({ cost }) => number(cost) },
  ];
}

/** A scorer's column has its score, the weight and the product; a picker's column has its number. */
function termColumns({ candidates, weights }: ExplainReport): readonly TableColumn<CandidateRow>[] {
  const names = [...new Set(candidates.flatMap(({ terms }) => Object.keys(terms)))];
  return names.map((name) => {
    const weight = weights[name];
    if (weight === undefined || weight === 1) return { header: name, value: ({ terms }) => number(terms[name]) };
    return {
      header: `${name} x ${number(weight)}`,
      value: ({ scores, terms }) => {
        const [score, term] = [number(scores[name]), number(terms[name])];
        return score === undefined || term === undefined ? undefined : `${score} = ${term}`;
      },
    };
  });
}

const loadColumns: readonly TableColumn<CandidateRow>[] = [
  { header: "in flight", value: ({ load }) => load.own.inFlight },
  { header: "to prefill (tokens)", value: ({ load }) => load.own.pendingPrefillTokens },
  { header: "others in flight", value: ({ load }) => load.others?.inFlight },
  { header: "others to prefill (tokens)", value: ({ load }) => load.others?.pendingPrefillTokens },
  { header: "received (ms ago)", value: ({ load }) => (load.others?.inFlight ? load.others.ageMs : undefined) },
];

/** How far candidates are, where that is known of any. */
function networkColumns(candidates: readonly CandidateRow[]): readonly TableColumn<CandidateRow>[] {
  const msOf = ({ signals }: CandidateRow): number | undefined => signals.networkMs ?? undefined;
  return candidates.some((one) => msOf(one) !== undefined) ? [{ header: "network (ms)", value: msOf, digits: 1 }] : [];
}

const knownColumns: readonly TableColumn<CandidateRow>[] = [
  { header: "announced (blocks)", value: ({ facts }) => (facts ? tiers(facts.blocks) : undefined) },
  { header: "feed quality", value: ({ facts }) => facts?.quality },
  { header: "feed", value: ({ facts }) => facts?.feed?.state },
  { header: "read by", value: ({ facts }) => (facts?.feed ? (facts.feed.readBy ?? "this router") : undefined) },
  { header: "epoch", value: ({ facts }) => facts?.feed?.epoch ?? undefined },
  { header: "last message (ms ago)", value: ({ facts }) => facts?.feed?.ageMs ?? undefined },
  { header: "lag (ms)", value: ({ facts }) => facts?.feed?.lagMs ?? undefined, digits: 1 },
  { header: "sent there (blocks)", value: ({ placement }) => placement?.blocks },
  { header: "confirmed", value: ({ placement }) => placement?.confirmedBlocks },
  { header: "sent by", value: ({ placement }) => (placement ? (placement.by ?? "this router") : undefined) },
  { header: "sent (ms ago)", value: ({ placement }) => placement?.ageMs },
];

/** When a candidate holds blocks that it cannot use: how many. */
function heldColumns(candidates: readonly CandidateRow[]): readonly TableColumn<CandidateRow>[] {
  const inVain = ({ facts }: CandidateRow) => (facts ? heldInVain(facts) : undefined);
  if (!candidates.some((candidate) => inVain(candidate))) return [];
  return [{ header: "held, not usable (blocks)", value: inVain }];
}

/** When a candidate can fetch from pools: what they hold, and the quality of their feed. */
function poolColumns(candidates: readonly CandidateRow[]): readonly TableColumn<CandidateRow>[] {
  if (!candidates.some(({ pools }) => pools?.length)) return [];
  const shown = ({ pool, blocks, quality }: NonNullable<CandidateRow["pools"]>[number]): string =>
    `${pool} ${blocks}${quality === "complete" ? "" : ` (${quality})`}`;
  return [{ header: "in pools (blocks)", value: ({ pools }) => pools?.map(shown).join(", ") || undefined }];
}

/** Blocks after the last point where the engine of a hybrid model can resume. */
function heldInVain({ blocks, heldBlocks }: Pick<Facts, "blocks" | "heldBlocks">): number {
  return heldBlocks - Object.values(blocks).reduce((sum, count) => sum + count, 0);
}

/** Tiers that hold a part of the prompt. */
function tiers(blocks: Readonly<Record<string, number>>): string {
  const present = Object.entries(blocks).filter(([, count]) => count > 0);
  return present.length === 0 ? "0" : present.map(([name, count]) => `${count} ${name}`).join(", ");
}

function percent(share: number): string {
  return `${(share * 100).toFixed(share === 1 || share === 0 ? 0 : 1)} %`;
}

/** Whole numbers as they are, others with four significant digits. */
function number(value: number | null | undefined): string | undefined {
  if (value === null || value === undefined) return undefined;
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4)));
}
