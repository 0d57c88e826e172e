import { type Clock, scanBody, silentLogger, systemScheduler } from "@espalier/core";
import {
  createModelTokenizer,
  createPromptEncoder,
  createPromptHasher,
  createTextTokenizer,
  hardTexts,
  loadTokenizerFiles,
  type PromptBlocks,
  type PromptEncoder,
  shippedModelFolder,
  type TextTokenizer,
} from "@espalier/tokenizer";
import { Tokenizer } from "tokenizers";
import {
  agentMessages,
  agentTools,
  largeBodyBytes,
  largeMessages,
  longBodyBytes,
  newTurnBytes,
} from "../data-path/loads.ts";
import { prepareRequest, type RequestShape, stampSerial } from "../data-path/prepared-request.ts";
import type { Figures } from "../support/median-spread.ts";
import { createTextSource, opening, renderedMessage, type TextSource } from "./tokenizer-texts.ts";

export const blockSize = 16;
export const conversationTokens = 12_000;
export const newTokens = 200;
export const messageLength = 1_200;
const largeLength = 48 * 1_024;
const maxNesting = 64;
const root = { low: 0x9e3779b9, high: 0x7f4a7c15 };

/** Our tokenizer and the reference implementation, for the same model. */
export interface Tokenizers {
  /** Of the model's files. */
  readonly folder: string;
  readonly ours: TextTokenizer;
  readonly reference: Tokenizer;
  /** Its added tokens. */
  readonly tokens: readonly string[];
}

export async function loadTokenizers(folder = shippedModelFolder()): Promise<Tokenizers> {
  const files = await loadTokenizerFiles(folder);
  const added = files.tokenizer.added_tokens as readonly { readonly content: string }[];
  return {
    folder,
    ours: createTextTokenizer(files),
    reference: Tokenizer.fromString(JSON.stringify(files.tokenizer)),
    tokens: added.map(({ content }) => content),
  };
}

/** How many hard texts get other tokens than with the reference, alone and with tokens around them. */
export async function countMismatches(
  { ours, reference, tokens }: Tokenizers,
  mixtures: number,
): Promise<{ readonly texts: number; readonly mismatches: number }> {
  const texts = hardTexts({ tokens, mixtures });
  let mismatches = 0;
  for (const { text } of texts) {
    for (const addSpecialTokens of [true, false]) {
      const wanted = (await reference.encode(text, null, { addSpecialTokens })).getIds();
      const got = ours.encode(text, { addSpecialTokens });
      if (wanted.length !== got.length || wanted.some((id, index) => id !== got[index])) mismatches++;
    }
  }
  return { texts: 2 * texts.length, mismatches };
}

export interface TokenizerRun {
  readonly espalier: Figures;
  readonly reference: Figures;
}

export interface TokenizerRunOptions {
  readonly tokenizers: Tokenizers;
  readonly clock: Clock;
  /** Duration of each measurement; the warm-up for the optimiser takes half as long. */
  readonly durationMs: number;
  readonly seed: number;
}

/** Measures everything once. */
export async function runTokenizerOnce(options: TokenizerRunOptions): Promise<TokenizerRun> {
  const { tokenizers } = options;
  const source = createTextSource(options.seed);
  const encoder = createPromptEncoder({ tokenizer: tokenizers.ours, hasher: createPromptHasher(), blockSize });
  const conversation = growConversation(encoder, source);
  const inTotal = conversation.blocks.tokenCount + newTokens;
  const newLength = Math.round((newTokens / conversation.blocks.tokenCount) * conversation.text.length);
  const cold = await medianMs(
    options,
    () => source.text(messageLength * 4),
    (text) => {
      return tokenizers.ours.encode(text, { addSpecialTokens: false }).length;
    },
  );
  const turn = await medianMs(
    options,
    () => nextTurn(conversation.text, source, newLength),
    (text) => see(encoder, text),
  );
  const hit = await medianMs(
    options,
    () => flat(conversation.text),
    (text) => see(encoder, text),
  );
  const large = largeConversation(source);
  see(encoder, large);
  const hitLarge = await medianMs(
    options,
    () => flat(large),
    (text) => see(encoder, text),
  );
  const reference = await medianMs(
    options,
    () => source.text(messageLength * 4),
    async (text) => {
      return (await tokenizers.reference.encode(text, null, { addSpecialTokens: false })).getIds().length;
    },
  );
  return {
    espalier: {
      tokens_per_s: cold.perSecond,
      prefix_state_tokens_per_s: (inTotal / turn.ms) * 1_000,
      pure_hit_tokens_per_s: (conversation.blocks.tokenCount / hit.ms) * 1_000,
      hit_us_48k: hitLarge.ms * 1_000,
      body_turn_us_48k: await bodyTurnUs(options, { bodyBytes: largeBodyBytes, messages: largeMessages + 1 }),
      body_turn_us_200k_agent: await bodyTurnUs(options, {
        bodyBytes: longBodyBytes,
        messages: agentMessages + 1,
        tools: agentTools,
      }),
    },
    reference: { tokens_per_s: reference.perSecond },
  };
}

/** The cost of a request: the blocks of its prompt and their chain. */
function see(encoder: PromptEncoder, text: string): number {
  const blocks = encoder.encode(encoder.plan(text, false));
  return encoder.chain(blocks, root).length;
}

/** A turn of a conversation with about 256 new tokens, from its body to the chain of its prompt. */
async function bodyTurnUs(options: TokenizerRunOptions, shape: RequestShape): Promise<number> {
  const { bytes, serialAt } = prepareRequest({ ...shape, lastMessageBytes: newTurnBytes });
  const from = bytes.length - shape.bodyBytes;
  const model = await createModelTokenizer({
    ...{ model: "bench", mode: "local", folder: options.tokenizers.folder, blockSize },
    ...{ hasher: createPromptHasher(), clock: options.clock, scheduler: systemScheduler, logger: silentLogger },
  });
  let serial = 0;
  const turn = (): Buffer => {
    stampSerial(bytes, serialAt, serial++);
    return Buffer.from(bytes.subarray(from));
  };
  const { ms } = await medianMs(options, turn, (sent) => {
    const body = scanBody(sent, maxNesting);
    if (typeof body === "string") throw new TypeError(`the body is ${body}`);
    const view = model.view({ endpoint: "chat", body, fields: {} });
    if (view instanceof Promise || view.how !== "tokens") throw new TypeError("the prompt was not tokenized at once");
    return model.chain(view, root).length;
  });
  return ms * 1_000;
}

function growConversation(encoder: PromptEncoder, source: TextSource): { text: string; blocks: PromptBlocks } {
  let text = renderedMessage("system", source.text(messageLength));
  let blocks = encoder.encode(encoder.plan(text + opening, false));
  while (blocks.tokenCount < conversationTokens - newTokens) {
    text +=
      renderedMessage("user", source.text(messageLength)) + renderedMessage("assistant", source.text(messageLength));
    blocks = encoder.encode(encoder.plan(text + opening, false));
  }
  return { text: text + opening, blocks };
}

/** The conversation with one more answer and question: as many tokens as `newTokens`. */
const nextTurn = (text: string, source: TextSource, length: number): string =>
  flat(`${text}${source.text(length / 2)}<|im_end|>\n${renderedMessage("user", source.text(length / 2))}${opening}`);

function largeConversation(source: TextSource): string {
  let text = "";
  while (text.length < largeLength) text += renderedMessage("user", source.text(messageLength));
  return text.slice(-largeLength) + opening;
}

/** A flat string that was never read before, instead of a rope that its first read would flatten. */
const flat = (text: string): string => Buffer.from(text, "utf16le").toString("utf16le");

interface Timing {
  /** The median of a call. */
  readonly ms: number;
  /** What calls returned in total, divided by their time. */
  readonly perSecond: number;
}

const maxCalls = 20_000;

/** Calls `work` with a fresh input each time; the creation of inputs is not timed. */
async function medianMs<Input>(
  { clock, durationMs }: TokenizerRunOptions,
  input: () => Input,
  work: (input: Input) => number | Promise<number>,
): Promise<Timing> {
  const repeat = async (forMs: number): Promise<{ times: number[]; sum: number }> => {
    const times: number[] = [];
    let [sum, spentMs] = [0, 0];
    while (times.length < maxCalls && (times.length < 3 || spentMs < forMs)) {
      const given = input();
      const startMs = clock.nowMs();
      const result = work(given);
      sum += typeof result === "number" ? result : await result;
      const tookMs = clock.nowMs() - startMs;
      times.push(tookMs);
      spentMs += tookMs;
    }
    return { times, sum };
  };
  await repeat(durationMs / 2);
  const { times, sum } = await repeat(durationMs);
  const total = times.reduce((all, one) => all + one, 0);
  times.sort((one, other) => one - other);
  return { ms: times[times.length >> 1]!, perSecond: (sum / total) * 1_000 };
}
