import { asEspalierError, EspalierError, silentLogger, systemClock, systemScheduler } from "@espalier/common";
import { type JsonBody, scanBody } from "@espalier/json-body";
import { endpoints, type RequestView, readRequestView } from "@espalier/openai";
import {
  cacheShares,
  createModelTokenizer,
  createPromptHasher,
  type ModelTokenizer,
  type PromptView,
} from "@espalier/tokenizer";
import { refuseReserved } from "../data-plane/refuse-reserved.ts";
import { BodyRequest } from "../prefix/body-request.ts";
import { frameOf, maxKeyBytes } from "./frame-of.ts";
import type { BodyResult, BodyTask, PlainView, PromptTerms, ReadingRules } from "./large-body-messages.ts";

/** Models of one router. A further one takes the place of the oldest. */
const maxTokenizers = 16;
/** Levels that no body has which was read before. */
const anyDepth = 1_000;

/** Does one task after the other. The body of the last one is kept, with what was found in it: its prompt is asked for next. */
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
    refuseReserved(view, rules.trustsTransferFields);
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
          return { kind: "model", model: modelOf(bodyOf(task)) };
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
  // Whoever reads the body for its endpoint says what is wrong with it.
  return typeof body === "string" ? [] : names.filter((name) => body.member(name) !== undefined);
}

function modelOf(body: JsonBody): string | undefined {
  const node = body.member("model");
  return node !== undefined && body.kindOf(node) === "string" ? body.textOf(node) : undefined;
}
