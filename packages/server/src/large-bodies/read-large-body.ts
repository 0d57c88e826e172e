import { endpoints, type RequestView, readRequestView } from "@espalier/api";
import {
  asEspalierError,
  EspalierError,
  type JsonBody,
  scanBody,
  silentLogger,
  systemClock,
  systemScheduler,
} from "@espalier/core";
import { findTransferField } from "@espalier/routing";
import {
  type ChatDialect,
  cacheShares,
  createModelTokenizer,
  createPromptHasher,
  type ModelTokenizer,
  type PromptHasher,
  type PromptRequest,
  type PromptView,
} from "@espalier/tokenizer";
import type { BodyResult, BodyTask, PlainView, PromptTerms, ReadingRules } from "./large-bodies.ts";
import { readForwardedBody } from "./read-forwarded-body.ts";
import { refuseReserved } from "./reserved-fields.ts";

/** Most tokenizers; a new one beyond it replaces the oldest. */
const maxTokenizers = 16;
/** Nesting limit for bodies that have been checked. */
const anyDepth = 1_000;

/** Runs tasks one at a time. Keeps the last parsed body, since the next task is usually its prompt. */
export function createBodyReader(): (task: BodyTask) => Promise<BodyResult> {
  const hasher = createPromptHasher();
  const tokenizers = new Map<string, Promise<ModelTokenizer>>();
  let last: { readonly id: number; readonly body: JsonBody } | undefined;

  const bodyOf = ({ bodyId, bytes }: BodyTask): JsonBody => {
    if (last?.id === bodyId) return last.body;
    const body = scanBody(bufferOf(bytes), anyDepth);
    if (typeof body === "string") throw new EspalierError("invalid_json");
    return body;
  };
  const read = (task: BodyTask, path: string, rules: ReadingRules): PlainView => {
    const endpoint = endpoints.find((one) => one.path === path)!;
    const view = readRequestView(endpoint, bufferOf(task.bytes), rules);
    if (!rules.trustsTransferFields) refuseReserved(findTransferField(view.body));
    last = { id: task.bodyId, body: view.body };
    return plainView(view, frameOf(view.body, hasher));
  };
  const tokenizerOf = ({ folder = "", blockSize, cacheBytes }: PromptTerms): Promise<ModelTokenizer> => {
    const known = tokenizers.get(folder);
    if (known) return known;
    for (const oldest of tokenizers.keys()) {
      if (tokenizers.size < maxTokenizers) break;
      tokenizers.delete(oldest);
    }
    const making = createModelTokenizer({
      ...{ model: "*", mode: folder === "" ? "bytes" : "local", folder, blockSize, hasher },
      ...cacheShares(cacheBytes),
      ...{ clock: systemClock, scheduler: systemScheduler, logger: silentLogger },
    });
    tokenizers.set(folder, making);
    // Files that could not be read may be readable next time.
    making.catch(() => tokenizers.delete(folder));
    return making;
  };
  const readPrompt = async (task: BodyTask, endpoint: string, terms: PromptTerms): Promise<PromptView> => {
    const tokenizer = await tokenizerOf(terms);
    const body = bodyOf(task);
    last = undefined;
    return tokenizer.view(new BodyRequest(endpoint, body, terms.dialect));
  };
  return async (task) => {
    const { job } = task;
    try {
      switch (job.kind) {
        case "read":
          return { kind: "read", view: read(task, job.path, job.rules) };
        case "prompt":
          return { kind: "prompt", prompt: await readPrompt(task, job.endpoint, job.terms) };
        case "model":
          return { kind: "model", model: readForwardedBody(bufferOf(task.bytes), job.forwarded) };
        case "fields":
          return { kind: "fields", names: fieldsOf(task.bytes, job.names) };
      }
    } catch (thrown) {
      const { code, message, param } = asEspalierError(thrown);
      if (code === "internal_error") throw thrown;
      return { kind: "refused", code, message, param };
    }
  };
}

const bufferOf = ({ buffer, byteOffset, byteLength }: Uint8Array): Buffer =>
  Buffer.from(buffer, byteOffset, byteLength);

function plainView({ endpoint: _, body: __, spans, ...plain }: RequestView, frame: Buffer): PlainView {
  const short = [...spans].filter(([name]) => name.length <= maxKeyBytes);
  return { ...plain, frame, spans: short.map(([name, { start, end }]) => [name, { start, end }]) };
}

function fieldsOf(bytes: Uint8Array, names: readonly string[]): readonly string[] {
  const body = scanBody(bufferOf(bytes), anyDepth);
  if (body === "invalid") throw new EspalierError("invalid_json");
  // Reading the body for its endpoint reports other defects.
  return typeof body === "string" ? [] : names.filter((name) => body.member(name) !== undefined);
}

/** Values up to this length, in bytes, are copied into the outline while they fit. */
const maxVerbatimBytes = 8 * 1_024;
/** Bytes of all values that the outline of a body copies. */
const maxFrameBytes = 256 * 1_024;
/** Characters kept of a longer string: more than any name or key that the router reads. */
const keptLength = 2_048;
/** Longer keys are dropped. */
const maxKeyBytes = 256;

/**
 * The outline of a body: its top-level members without large values. A long string becomes its beginning and its hash,
 * a list of numbers becomes `[0]`, other lists and objects become empty. It contains all that the router reads of a
 * body except the prompt.
 */
export function frameOf(body: JsonBody, hasher: PromptHasher): Buffer {
  const members: string[] = [];
  let room = maxFrameBytes;
  const behind = body.after(0);
  for (let key = 1; key < behind; key = body.after(key + 1)) {
    if (body.textBytes(key) > maxKeyBytes) continue;
    const [start, end] = [body.startOf(key + 1), body.endOf(key + 1)];
    const isKept = end - start <= Math.min(maxVerbatimBytes, room);
    if (isKept) room -= end - start;
    const value = isKept ? body.bytes.toString("utf8", start, end) : outlineOf(body, key + 1, hasher);
    members.push(`${JSON.stringify(body.textOf(key))}:${value}`);
  }
  return Buffer.from(`{${members.join(",")}}`);
}

function outlineOf(body: JsonBody, node: number, hasher: PromptHasher): string {
  switch (body.kindOf(node)) {
    case "string":
      return JSON.stringify(shortened(body.textOf(node), hasher));
    case "array":
      return body.after(node) > node + 1 && body.kindOf(node + 1) === "number" ? "[0]" : "[]";
    case "object":
      return "{}";
    default:
      return "1";
  }
}

function shortened(text: string, { text: running }: PromptHasher): string {
  running.reset();
  running.update(text);
  return `${text.slice(0, keptLength)}:${text.length}:${running.high.toString(16)}:${running.low.toString(16)}`;
}

/** A request whose fields are parsed on demand. */
export class BodyRequest implements PromptRequest {
  readonly endpoint: string;
  readonly body: JsonBody;
  readonly dialect: ChatDialect;

  constructor(endpoint: string, body: JsonBody, dialect: ChatDialect) {
    this.endpoint = endpoint;
    this.body = body;
    this.dialect = dialect;
  }

  get fields(): PromptRequest["fields"] {
    return this.body.fields;
  }
}
