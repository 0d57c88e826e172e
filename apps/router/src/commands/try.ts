import {
  type ErrorCode,
  EspalierError,
  errorCatalogue,
  isLoopback,
  layOutTable,
  renderErrorDocs,
  systemClock,
  systemRandom,
  systemScheduler,
  wrapText,
} from "@espalier/core";
import type { RouterStatus } from "@espalier/server";
import { type Answer, createLoadClient } from "@espalier/simulator";
import { shippedModelFolder } from "@espalier/tokenizer";
import type { Command } from "commander";
import { type AdminOptions, addAdminOptions, askAdmin, askStatus } from "../cli/admin-client.ts";
import { collect, readEndpointUrl } from "../cli/read-flags.ts";
import { groupDigits, writeJson, writeNote, writeResult } from "../output.ts";
import { withLocalFleet } from "../processes/start-routers.ts";
import { abortOnSignal } from "../signals.ts";
import { addCommand } from "./command-list.ts";

interface TryFlags extends AdminOptions {
  readonly url?: readonly string[];
  readonly model?: string;
  readonly apiKey?: string;
}

export function registerTry(program: Command): void {
  const command = addCommand(program, "try")
    .description(
      "Sends two turns of a conversation to two routers and shows the engine and the cached tokens of each. " +
        "If no router answers at the default address, starts two with four simulated engines.",
    )
    .option("--url <url>", "client address of a router, instead of --admin; repeatable", collect)
    .option("--model <name>", "model (default: the first one served)")
    .option("--api-key <key>", "client API key");
  addAdminOptions(command).action(async (flags: TryFlags) => {
    const mayStart = flags.url === undefined && command.getOptionValueSource("admin") === "default";
    const signal = abortOnSignal();
    const report = await withFleet(flags, mayStart, signal, (fleet) => holdConversation(fleet, flags.apiKey, signal));
    if (flags.json) writeJson(report);
    else writeResult(describeTry(report));
  });
}

/** Routers to ask, and the model. */
interface Fleet {
  readonly urls: readonly string[];
  readonly model: string;
}

type Use<Result> = (fleet: Fleet) => Promise<Result>;

async function withFleet<Result>(flags: TryFlags, mayStart: boolean, signal: AbortSignal, use: Use<Result>) {
  const found = await findFleet(flags).catch((error: unknown) => {
    if (mayStart && error instanceof EspalierError && error.code === "upstream_connect_failed") return undefined;
    throw error;
  });
  if (found) return use(found);
  writeNote(`no router answers at ${flags.admin}; starting two routers and four simulated engines`);
  const model = flags.model ?? "sim-model";
  const shape = { count: 4, preset: "h100-32b-tp2", speed: 1, port: 0, kvEvents: true };
  return withLocalFleet(
    {
      engines: { ...shape, model, tokenizer: shippedModelFolder() },
      ...{ policy: "predicted_latency", routers: 2, sharing: "mesh", signal },
    },
    (urls) => use({ urls, model }),
  );
}

async function findFleet(flags: TryFlags): Promise<Fleet> {
  if (flags.url) {
    const urls = flags.url.map(readUrl);
    return { urls, model: flags.model ?? (await servedModel(urls[0]!, flags.apiKey)) };
  }
  const status = await askStatus(flags);
  const model = flags.model ?? status.models[0];
  if (model === undefined) {
    throw new EspalierError(
      "no_engine_available",
      `The router at ${flags.admin} knows no model; check that an engine is up`,
    );
  }
  const others = await Promise.all(
    status.peers.map(async ({ adminUrl: admin }) => {
      const peer = await askStatus({ ...flags, admin }).catch(() => undefined);
      return peer ? [clientUrl(peer, admin)] : [];
    }),
  );
  return { urls: [clientUrl(status, flags.admin), ...others.flat()], model };
}

/** The first model that clients of a router see. */
async function servedModel(url: string, key: string | undefined): Promise<string> {
  const asked = { admin: url, flag: "--url", ...(key === undefined ? {} : { key }) };
  const { data = [] } = await askAdmin<{ readonly data?: readonly { readonly id: string }[] }>(asked, "/v1/models");
  const [first] = data;
  if (!first)
    throw new EspalierError("no_engine_available", `The router at ${url} serves no model; check that an engine is up`);
  return first.id;
}

const readUrl = (url: string): string => readEndpointUrl(url, "--url");

/** Where this machine reaches a router: one that listens on all addresses, by the name of its admin listener. */
function clientUrl({ url }: RouterStatus, admin: string): string {
  const found = new URL(url);
  if (["0.0.0.0", "[::]"].includes(found.hostname) || isLoopback(found.hostname)) {
    found.hostname = new URL(admin).hostname;
  }
  if (found.protocol === "http:") return found.origin;
  throw new Error(
    `the router at ${found.origin} speaks TLS, which this command does not; set --url to a plain listener`,
  );
}

/** One turn, as its client saw it. */
interface Turn {
  readonly turn: number;
  readonly router: string;
  /** Null when the router does not name it. */
  readonly engine: string | null;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  /** Whether the engine reported the cached tokens; otherwise the router expected them. */
  readonly isReported: boolean;
  readonly firstTokenMs: number;
}

export interface TryReport {
  readonly turns: readonly [Turn, Turn];
  /** Routers that were found. */
  readonly routers: number;
  readonly says: string;
}

const questions = [
  "Which of these errors may a client retry at once, and which only after a while?",
  "And for which of them must an operator do something?",
] as const;
const answerTokens = 40;

/**
 * A person reads an answer before going on. Meanwhile the routers share where the first turn went. A machine that pauses takes
 * one of the steps away, not all.
 */
const readingSteps = 12;
const readingStepMs = 50;

/** A reference that the conversation is about: long enough for a cache to matter, and new to every engine. */
function instructions(): string {
  const number = systemRandom.integer(2 ** 32);
  return `Conversation ${number}. You answer questions about the errors of a router, by this page.\n\n${renderErrorDocs()}`;
}

async function holdConversation({ urls, model }: Fleet, apiKey: string | undefined, signal: AbortSignal) {
  const client = createLoadClient(systemClock);
  const messages = [{ role: "system", content: instructions() }];
  const ask = async (turn: 0 | 1): Promise<Turn> => {
    const url = urls[turn] ?? (urls[0] as string);
    messages.push({ role: "user", content: questions[turn] });
    const answer = await client.send(
      {
        ...{ url, path: "/v1/chat/completions", keepText: true, keepHeaders: [expectedHeader] },
        headers: apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` },
        body: JSON.stringify({
          ...{ model, messages, max_tokens: answerTokens, stream: true },
          stream_options: { include_usage: true },
        }),
      },
      signal,
    );
    if (answer.error !== undefined) throw failure(answer, url);
    messages.push({ role: "assistant", content: answer.text });
    return turnOf(answer, turn + 1, url);
  };
  try {
    const first = await ask(0);
    for (let step = 0; step < readingSteps; step++) {
      await new Promise<void>((resolve) => systemScheduler.after(readingStepMs, resolve));
    }
    const turns = [first, await ask(1)] as const;
    return { turns, routers: urls.length, says: pointOf(turns, urls.length) };
  } finally {
    client.close();
  }
}

const expectedHeader = "x-espalier-cache-hit-tokens";

function turnOf(answer: Answer, turn: number, router: string): Turn {
  const expected = Number(answer.headers?.[expectedHeader] ?? 0);
  return {
    ...{ turn, router, engine: answer.engine ?? null },
    promptTokens: answer.promptTokens ?? 0,
    cachedTokens: answer.cachedTokens ?? expected,
    isReported: answer.cachedTokens !== undefined,
    firstTokenMs: answer.firstTokenMs - answer.startMs,
  };
}

function failure({ error, errorCode, status }: Answer, url: string): Error {
  if (status === 0) {
    return new EspalierError(
      "upstream_connect_failed",
      `No router answers at ${url} (${error}); set --url to another address.`,
    );
  }
  const advice = status === 401 ? "Pass --api-key." : status === 404 ? "Pass --model." : "";
  const message = `The router at ${url} answered: ${[error, advice].filter(Boolean).join(" ")}`;
  return errorCode !== undefined && Object.hasOwn(errorCatalogue, errorCode)
    ? new EspalierError(errorCode as ErrorCode, message)
    : new Error(message);
}

/** What the two turns show, in one sentence. */
function pointOf([first, second]: TryReport["turns"], routers: number): string {
  const cached = `${groupDigits(second.cachedTokens)} of ${groupDigits(second.promptTokens)} tokens were ${
    second.isReported ? "" : "expected to be "
  }cached`;
  const from = routers > 1 ? "came in at another router" : "came in at the only router";
  if (first.engine === null || first.engine !== second.engine) {
    return `turn 2 ${from} and went to another engine, where ${cached}: \`espalier explain\` shows the reason`;
  }
  if (second.cachedTokens === 0) {
    return `turn 2 ${from} and met the same engine, but ${cached}: check that its prefix cache is enabled`;
  }
  return `turn 2 ${from} and met the same engine: ${cached}`;
}

/** A line for each turn, and what they show. */
export function describeTry({ turns, says }: TryReport): string {
  const table = layOutTable(turns, [
    { header: "turn", value: ({ turn }) => turn },
    { header: "router", value: ({ router }) => router },
    { header: "engine", value: ({ engine }) => engine ?? undefined },
    {
      header: "cached tokens",
      value: (turn) => `${groupDigits(turn.cachedTokens)} of ${groupDigits(turn.promptTokens)}`,
    },
    { header: "first token (ms)", value: ({ firstTokenMs }) => firstTokenMs },
  ]);
  return `${table}${wrapText(says, 0)}`;
}
