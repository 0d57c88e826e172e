import { randomBytes } from "node:crypto";
import { createWriteStream, existsSync, statSync } from "node:fs";
import { join } from "node:path";
import type { Writable } from "node:stream";
import { finished, pipeline } from "node:stream/promises";
import { createGzip, type Gzip } from "node:zlib";
import { type Cancel, EspalierError, type HttpStreamClient, systemClock, systemScheduler } from "@espalier/core";
import { createControlHttp } from "@espalier/engines";
import type { RecordedRequest } from "@espalier/server";
import { bailianLine, maxLineBytes, maxTraceRequests } from "@espalier/simulator";
import { type Command, Option } from "commander";
import { askStatus, refusalOf } from "../cli/admin-client.ts";
import { collect, readNumber, UsageError } from "../cli/read-flags.ts";
import { createProgressBar, writeJson, writeNote, writeResult } from "../output.ts";
import { createLineages, type Lineage } from "../replay/lineage.ts";
import { abortOnSignal, wait } from "../signals.ts";
import { addCommand } from "./command-list.ts";

interface RecordFlags {
  readonly admin?: readonly string[];
  readonly key?: string;
  readonly minutes: string;
  readonly out?: string;
  readonly model?: string;
  readonly json?: boolean;
}

/** Longest recording, in minutes. */
const maxMinutes = 24 * 60;
const usualAdmin = "http://127.0.0.1:9090";
const usualName = "trace";
const usualEnding = ".jsonl.gz";

export function registerRecord(program: Command): void {
  addCommand(program, "record")
    .description(
      "Records live traffic as a trace for simulate and replay: arrival times, token counts, which answers " +
        "each request of a session waited for and its pause after them, and salted numbers for blocks, sessions, " +
        "agents and tenants. No text leaves a router. " +
        "Ctrl-C stops early with a complete file.",
    )
    .addOption(
      new Option("--admin <url>", `admin address of a router; repeatable (default: ${usualAdmin})`)
        .argParser(collect)
        .env("ESPALIER_ADMIN_URL"),
    )
    .addOption(new Option("--key <key>", "admin key").env("ESPALIER_ADMIN_KEY"))
    .option("--minutes <n>", "duration in minutes, at most 1440", "10")
    .option(
      "--out <file>",
      `new file; gzipped if it ends in .gz (default: ${usualName}${usualEnding}, numbered if that exists)`,
    )
    .option("--model <name>", "only requests for this model")
    .option("--json", "print JSON")
    .action(record);
}

async function record(flags: RecordFlags): Promise<void> {
  const { key, out = freeTraceName(), model, json } = flags;
  const durationMs = readNumber(flags.minutes, "--minutes", { min: 0.001, max: maxMinutes }) * 60_000;
  if (existsSync(out)) throw new UsageError(existsAlready(out));
  const admins = flags.admin ?? [usualAdmin];
  const fleet = await fleetOf(admins[0]!, key);
  const recording = await recordTrace({
    ...{ admins, durationMs, file: out, signal: abortOnSignal() },
    ...(key === undefined ? {} : { key }),
    ...(model === undefined ? {} : { model }),
  });
  const { requests, models, skipped, isFull, lost } = recording;
  for (const note of lost) writeNote(note);
  if (isFull)
    writeNote(`stopped early: the limit is ${recordLimits.requests} requests or ${recordLimits.bytes / 1e9} GB`);
  if (json) writeJson({ file: out, ...recording, ...fleet });
  else if (requests > 0) {
    const left = skipped === 0 ? "" : `, ${skipped} skipped`;
    writeResult(`${requests} requests in ${out} (${(statSync(out).size / 1e6).toFixed(1)} MB)${left}`);
    if (models.length > 1)
      writeNote(`models ${models.join(", ")}: record one of them with --model to simulate its engines`);
    const { engines, routers } = fleet;
    writeResult(`espalier simulate --trace ${out} --engines ${engines} --routers ${routers} --what-if engines+1`);
  }
  if (requests === 0) writeNote("no requests recorded");
  if (requests === 0 || lost.length === admins.length) process.exitCode = 1;
}

/** No recording can be made twice, so none is overwritten. */
export function freeTraceName(folder = ""): string {
  for (let number = 1; ; number += 1) {
    const name = join(folder, `${usualName}${number === 1 ? "" : `-${number}`}${usualEnding}`);
    if (!existsSync(name)) return name;
  }
}

const existsAlready = (path: string): string => `--out: ${path} exists already: name another file, or move it away`;

/** How many engines and routers there are, for the simulation of the trace. */
async function fleetOf(admin: string, key: string | undefined): Promise<{ engines: number; routers: number }> {
  const { usableEngines, mesh } = await askStatus({ admin, ...(key === undefined ? {} : { key }) });
  const others = mesh?.members.filter(({ state }) => state === "alive").length ?? 0;
  return { engines: Math.max(1, usableEngines), routers: 1 + others };
}

export interface RecordTraceOptions {
  readonly admins: readonly string[];
  readonly key?: string;
  readonly durationMs: number;
  readonly file: string;
  /** Only its requests. */
  readonly model?: string;
  readonly signal: AbortSignal;
  readonly limits?: Partial<RecordLimits>;
}

interface RecordLimits {
  readonly requests: number;
  /** Of the trace before it is compressed. */
  readonly bytes: number;
  /** That wait to be written. */
  readonly waitingBytes: number;
}

export const recordLimits: RecordLimits = {
  requests: maxTraceRequests,
  bytes: 4e9,
  waitingBytes: 64 * 1_024 ** 2,
};

export interface Recording {
  readonly requests: number;
  readonly models: readonly string[];
  /** Requests that were left out because a reader was too slow. */
  readonly skipped: number;
  /** Whether a limit ended it. */
  readonly isFull: boolean;
  /** Routers that were lost, and why, as sentences. */
  readonly lost: readonly string[];
}

/** Most models whose names are kept. */
const maxModels = 64;
const showEveryMs = 200;
/** A router tells something every second. */
const silenceMs = 10_000;

/**
 * Records until the time is over, the signal aborts, a limit is reached, or every router is gone. The file is whole in each case;
 * without a request there is none.
 *
 * @throws EspalierError when a router refuses, UsageError for a file that cannot be written
 */
export async function recordTrace(options: RecordTraceOptions): Promise<Recording> {
  const { admins, key, durationMs, file, model, signal } = options;
  const limits = { ...recordLimits, ...options.limits };
  const ending = new AbortController();
  const salt = randomBytes(16).toString("hex");
  const trace = createTraceFile(file, () => ending.abort());
  const models = new Set<string>();
  const lineageOf = createLineages();
  const skippedBy = new Map<string, number>();
  const lost = new Map<string, EspalierError>();
  let refusal: EspalierError | undefined;
  let skippedHere = 0;
  const bar = createProgressBar("record", Math.round(durationMs / 1_000));
  const startMs = systemClock.nowMs();
  const show = (): void => {
    const seconds = Math.round(Math.min(durationMs, systemClock.nowMs() - startMs) / 1_000);
    bar.update(seconds, `${trace.lines} requests, ${(trace.bytes / 1e6).toFixed(1)} MB`);
  };
  const add = (request: RecordedRequest): void => {
    if (ending.signal.aborted || (model !== undefined && request.model !== model)) return;
    if (trace.waitingBytes > limits.waitingBytes) {
      skippedHere += 1;
      return;
    }
    const chat = trace.lines + 1;
    trace.write(lineOf(request, chat, lineageOf(request, chat)));
    if (models.size < maxModels) models.add(request.model);
    if (trace.lines >= limits.requests || trace.bytes >= limits.bytes) ending.abort();
  };
  const http = createControlHttp({ scheduler: systemScheduler });
  const cancels = admins.map((admin) =>
    followRouter(
      http.stream,
      { admin, key, salt },
      {
        onRequest: add,
        onSkipped: (count) => skippedBy.set(admin, count),
        onRefused(error) {
          refusal ??= error;
          ending.abort();
        },
        onLost(error) {
          lost.set(admin, error);
          if (lost.size === admins.length) ending.abort();
        },
      },
    ),
  );
  cancels.push(systemScheduler.every(showEveryMs, show));
  await wait(durationMs, AbortSignal.any([signal, ending.signal]));
  for (const cancel of cancels) cancel();
  http.close();
  await trace.end();
  if (refusal) throw refusal;
  show();
  bar.end();
  return {
    requests: trace.lines,
    models: [...models].sort(),
    skipped: [...skippedBy.values()].reduce((sum, count) => sum + count, skippedHere),
    isFull: ending.signal.aborted && lost.size < admins.length,
    lost: [...lost].map(([admin, { message }]) => `the router at ${admin} was lost: ${message}`),
  };
}

/** A file that is created with its first line, and gzipped where its name says so. */
function createTraceFile(path: string, onFailed: () => void) {
  let sink: { readonly out: Writable; readonly isWritten: Promise<void> } | undefined;
  let lines = 0;
  let bytes = 0;
  const open = (): NonNullable<typeof sink> => {
    const file = createWriteStream(path, { flags: "wx" });
    const out = path.endsWith(".gz") ? createGzip() : file;
    const isWritten = out === file ? finished(file) : pipeline(out as Gzip, file);
    isWritten.catch(onFailed);
    return { out, isWritten };
  };
  return {
    get lines() {
      return lines;
    },
    get bytes() {
      return bytes;
    },
    get waitingBytes() {
      return sink?.out.writableLength ?? 0;
    },
    write(line: string): void {
      sink ??= open();
      sink.out.write(`${line}\n`);
      lines += 1;
      bytes += line.length + 1;
    },
    async end(): Promise<void> {
      sink?.out.end();
      await sink?.isWritten.catch((error: NodeJS.ErrnoException) => {
        if (error.code === "EEXIST") throw new UsageError(existsAlready(path));
        throw new UsageError(`--out: ${path} cannot be written: ${error.message}`);
      });
    },
  };
}

/** The session stands as the chat that each of its requests continues, and that is not in the trace itself. */
function lineOf(request: RecordedRequest, chat: number, { turn, after, pauseMs }: Lineage): string {
  const { atMs, inputTokens, outputTokens, blocks, session, agent, parentAgent, model, tenant, adapter } = request;
  return bailianLine({
    ...{ chat, parent: session ?? undefined, arrivalMs: atMs, inputTokens, outputTokens, blockIds: blocks },
    others: {
      ...{ model, ...(tenant === null ? {} : { tenant }), ...(adapter === null ? {} : { adapter }) },
      ...(agent === null ? {} : { agent, ...(parentAgent === null ? {} : { parent_agent: parentAgent }) }),
      ...{ turn, after, pause_ms: pauseMs },
    },
  });
}

interface RouterObserver {
  onRequest(request: RecordedRequest): void;
  /** @param count requests that the router has left out so far */
  onSkipped(count: number): void;
  /** Called once, when the router does not let it be recorded. */
  onRefused(error: EspalierError): void;
  /** Called once, when it ends or can no longer be heard. */
  onLost(error: EspalierError): void;
}

interface FollowedRouter {
  readonly admin: string;
  readonly key: string | undefined;
  readonly salt: string;
}

/** Reads what one router tells until it is cancelled. */
function followRouter(
  stream: HttpStreamClient,
  { admin, key, salt }: FollowedRouter,
  observer: RouterObserver,
): Cancel {
  let status = 0;
  let rest = "";
  let heardMs = systemClock.nowMs();
  const decoder = new TextDecoder();
  const lose = (error: EspalierError): void => {
    cancel();
    observer.onLost(error);
  };
  const take = (line: string): void => {
    const sent = JSON.parse(line) as RecordedRequest | { readonly skipped: number };
    if ("skipped" in sent) observer.onSkipped(sent.skipped);
    else observer.onRequest(sent);
  };
  const authorization = key === undefined ? {} : { authorization: `Bearer ${key}` };
  const cancelStream = stream(
    {
      url: `${admin.replace(/\/$/, "")}/admin/recording`,
      headers: { "x-espalier-salt": salt, ...authorization },
      headTimeoutMs: silenceMs,
    },
    {
      onHead(head) {
        status = head;
      },
      onData(chunk) {
        heardMs = systemClock.nowMs();
        const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
        rest = lines.pop() ?? "";
        if (status === 200) for (const line of lines) take(line);
        if (rest.length > maxLineBytes) lose(new EspalierError("upstream_protocol_error"));
      },
      onEnd(error) {
        cancelLook();
        if (status !== 200 && !error) observer.onRefused(refusalOf(admin, status, rest));
        else observer.onLost(error ?? new EspalierError("upstream_connect_failed", "It stopped."));
      },
    },
  );
  const cancelLook = systemScheduler.every(1_000, () => {
    if (systemClock.nowMs() - heardMs > silenceMs) lose(new EspalierError("upstream_timeout"));
  });
  const cancel = (): void => {
    cancelLook();
    cancelStream();
  };
  return cancel;
}
