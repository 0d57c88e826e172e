import { createCipheriv, createHmac } from "node:crypto";
import { type Cancel, type Clock, EspalierError, type Logger, type Random, type Scheduler } from "@espalier/core";
import { closed, type Described, nullable, Type } from "@espalier/core/schema";
import type { PromptBlocks } from "@espalier/routing";
import type { FastifyInstance } from "fastify";
import { answer, error } from "../lifecycle/answer-schemas.ts";
import type { PlannedRequest } from "../request/planned-request.ts";
import { getStream } from "./get-stream.ts";

/** One request as a recording has it: times, sizes, and names that mean nothing outside the recording. No text, no key. */
const recordedRequest = closed(
  {
    atMs: Type.Integer({ description: "Time of acceptance, in milliseconds since the Unix epoch." }),
    durationMs: Type.Integer({ description: "Milliseconds from acceptance to the end of the answer." }),
    model: Type.String(),
    inputTokens: Type.Integer(),
    /** Those expected, where none was seen: the request was refused or failed, or its answer was not shown. */
    outputTokens: Type.Integer(),
    blocks: Type.Array(Type.Integer(), {
      description: "Number of each full block of 16 tokens; equal prefixes have equal numbers.",
    }),
    /** Numbers of the session and the tenant; null without one. */
    session: nullable(Type.Integer()),
    /** Numbers of the session's agent and of the one that began it; null for the session's own. */
    agent: nullable(Type.Integer()),
    parentAgent: nullable(Type.Integer()),
    tenant: nullable(Type.Integer()),
    adapter: nullable(Type.String()),
  },
  { title: "RecordedRequest" },
);

export type RecordedRequest = Described<typeof recordedRequest>;

/** A line of a recording. */
const recordedLine = Type.Union([recordedRequest, closed({ skipped: Type.Integer() })]);

/** What is known of a request when it has ended. */
export interface EndedRequest {
  readonly plan: Pick<
    PlannedRequest,
    "pool" | "features" | "service" | "acceptedMs" | "recordedPrompt" | "recordedAgent"
  >;
  /** As the engine counted them; undefined where it did not say. */
  readonly promptTokens: number | undefined;
  readonly outputTokens: number;
}

/** Passes requests on to those who record them. Without any it keeps nothing and costs one comparison per request. */
export interface Recorder {
  readonly isOn: boolean;
  /** Call it only while `isOn`. */
  ended(request: EndedRequest): void;
  /**
   * @param salt 16 bytes, known to the one who records; routers that are given the same one give blocks the same numbers
   * @param onRequest called for every request that ends; undefined for one that is too long to be recorded
   * @returns undefined when there are too many recordings
   */
  record(salt: Buffer, onRequest: (request: RecordedRequest | undefined) => void): Cancel | undefined;
}

/** Tokens of a block in a recording, as in Qwen-Bailian traces. */
const recordedBlockTokens = 16;
/** Most recordings at a time. */
export const maxRecordings = 4;
/** Most blocks of a request: two million tokens. Longer ones are only counted. */
export const maxRecordedBlocks = 131_072;
/** Bytes of a recording's salt, a key of AES-128. */
const saltBytes = 16;

export function createRecorder({ clock, random }: { readonly clock: Clock; readonly random: Random }): Recorder {
  const recordings = new Set<(request: EndedRequest) => void>();
  let isOn = false;
  return {
    get isOn() {
      return isOn;
    },
    ended(request) {
      // Embeddings, counts of tokens and stored responses are answered with no token.
      if (request.plan.features.expectedOutputTokens === 0) return;
      for (const recording of recordings) recording(request);
    },
    record(salt, onRequest) {
      if (recordings.size >= maxRecordings) return undefined;
      const recording = (request: EndedRequest): void => onRequest(anonymize(request, { salt, clock, random }));
      recordings.add(recording);
      isOn = true;
      return () => {
        recordings.delete(recording);
        isOn = recordings.size > 0;
      };
    },
  };
}

interface Anonymizing {
  readonly salt: Buffer;
  readonly clock: Clock;
  readonly random: Random;
}

function anonymize(
  { plan, promptTokens, outputTokens }: EndedRequest,
  { salt, clock, random }: Anonymizing,
): RecordedRequest | undefined {
  const { pool, features, service, acceptedMs, recordedPrompt: prompt, recordedAgent } = plan;
  // Blocks of bytes go with tokens that are estimated of the same bytes.
  const inputTokens = Math.max(1, prompt?.from === "bytes" ? prompt.tokens : (promptTokens ?? features.promptTokens));
  const blockCount = Math.floor(inputTokens / recordedBlockTokens);
  if (blockCount > maxRecordedBlocks) return undefined;
  const named = (kind: string, name: string | undefined, scope?: string): number | null =>
    name
      ? createHmac("sha256", salt)
          .update(JSON.stringify([kind, pool.model, name, scope]))
          .digest()
          .readUIntLE(0, 6)
      : null;
  const durationMs = clock.nowMs() - acceptedMs;
  const session = recordedAgent?.session ?? features.sessionKey;
  const agentNamed = (agent: string | undefined): number | null =>
    agent === undefined ? null : named("agent", JSON.stringify([session, agent]), features.sessionScope);
  return {
    atMs: Math.round(clock.wallMs() - durationMs),
    durationMs: Math.round(durationMs),
    model: pool.model,
    inputTokens,
    outputTokens: outputTokens > 0 ? outputTokens : features.expectedOutputTokens,
    blocks: [...numbersOf(blockCount, prompt, { salt, random })],
    session: named("session", session, features.sessionScope),
    agent: agentNamed(recordedAgent?.agent),
    parentAgent: agentNamed(recordedAgent?.parent),
    tenant: named("tenant", service?.tenant),
    adapter: features.adapter ?? null,
  };
}

/** Bytes of a block of AES. */
const cipherBytes = 16;

/**
 * Numbers of 32 bits for the blocks of a prompt. A chain hash stands for a block and everything before it, so that a block is named by
 * the chain hash at its end, encrypted with the recording's salt: without the salt, nobody can tell which text it was by hashing
 * texts. Blocks of which no hash is known are taken to be like no others.
 */
function numbersOf(
  blockCount: number,
  prompt: PromptBlocks | undefined,
  { salt, random }: Pick<Anonymizing, "salt" | "random">,
): Uint32Array {
  const plain = new Uint32Array((blockCount * cipherBytes) / 4);
  const { chain, blockCount: known = 0, blockSize = recordedBlockTokens } = prompt ?? {};
  const strange = random.integer(2 ** 32);
  for (let block = 0; block < blockCount; block++) {
    const at = 4 * block;
    const end = Math.ceil(((block + 1) * recordedBlockTokens) / blockSize) - 1;
    const isKnown = chain !== undefined && end < known;
    plain[at] = isKnown ? chain[2 * end]! : strange;
    plain[at + 1] = isKnown ? chain[2 * end + 1]! : block;
    // Several of these blocks may end in one of the router's.
    plain[at + 2] = block;
    plain[at + 3] = isKnown ? 1 : 0;
  }
  const cipher = createCipheriv("aes-128-ecb", salt, null).setAutoPadding(false);
  const encrypted = cipher.update(new Uint8Array(plain.buffer));
  return Uint32Array.from({ length: blockCount }, (_, block) => encrypted.readUInt32LE(block * cipherBytes));
}

/** Interval of the lines by which readers tell a dead router from a quiet one. */
const keepAliveMs = 1_000;
/** Most bytes buffered for one reader; beyond it, requests are left out and counted. */
const maxRecordingBytes = 4_194_304;
const saltHeader = "x-espalier-salt";

interface RecordingRoutes {
  readonly recorder: Recorder;
  readonly logger: Logger;
  readonly scheduler: Scheduler;
}

/**
 * `GET /admin/recording`: streams every request that ends from now on, a JSON object a line; once a second a line with the number
 * that was left out.
 */
export function registerRecording(app: FastifyInstance, { recorder, logger, scheduler }: RecordingRoutes): void {
  const head = { "content-type": "application/x-ndjson" };
  const schema = {
    operationId: "recording",
    summary: "Live finished requests, without text, in the format of `espalier record`.",
    tags: ["router"],
    headers: Type.Object({
      [saltHeader]: Type.String({
        description: "Salt for the numbers of blocks, sessions, agents and tenants: 32 hexadecimal digits.",
      }),
    }),
    response: {
      200: answer(
        "JSON lines: a request each, and once a second the number of omitted requests.",
        recordedLine,
        "application/x-ndjson",
      ),
      400: error("Missing salt."),
      429: error("Too many concurrent recordings."),
    },
  };
  getStream(app, "/admin/recording", schema, head, ({ headers }, raw) => {
    const salt = Buffer.from(String(headers[saltHeader] ?? ""), "hex");
    if (salt.length !== saltBytes) {
      throw new EspalierError("invalid_header", `${saltHeader} must have ${2 * saltBytes} hexadecimal digits.`, {
        param: saltHeader,
      });
    }
    let skipped = 0;
    const write = (line: Described<typeof recordedLine>): void => void raw.write(`${JSON.stringify(line)}\n`);
    const cancelRecord = recorder.record(salt, (request) => {
      if (!request || raw.destroyed || raw.writableLength > maxRecordingBytes) skipped += 1;
      else write(request);
    });
    if (!cancelRecord) throw new EspalierError("overloaded");
    const cancelSigns = scheduler.every(keepAliveMs, () => {
      if (!raw.destroyed && raw.writableLength <= maxRecordingBytes) write({ skipped });
    });
    raw.once("close", () => {
      cancelRecord();
      cancelSigns();
      logger.info("recording ended", { skipped });
    });
    logger.info("recording started");
    return () => write({ skipped });
  });
}
