import { readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { scanBody } from "@espalier/core";
import { createRecordingLogger, createVirtualTime, sharedPath } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { chatDialectOf } from "../../src/chat/chat-dialect.ts";
import { chatInputOf } from "../../src/chat/chat-input.ts";
import { compileChatTemplate } from "../../src/chat/chat-template.ts";
import { createModelTokenizer, type ModelTokenizer } from "../../src/modes/model-tokenizer.ts";
import { createBlockBuilder, createPromptHasher, noBlocks } from "../../src/prompt/prompt-blocks.ts";
import { selectTemplate, specialTokensOf } from "../../src/tokenizer-files.ts";
import { goldenClock } from "./golden.ts";

interface Captured {
  readonly id: number;
  readonly session: number;
  readonly path: string;
  readonly status: number;
  readonly request: Readonly<Record<string, unknown>> | null;
  readonly prompt_token_ids?: readonly number[] | null;
}

const hasher = createPromptHasher();
const blockSize = 4;

interface TokenizerFile {
  readonly added_tokens: readonly { readonly id: number; readonly content: string }[];
  readonly model: { readonly vocab: Readonly<Record<string, number>> };
}

/** Lines of a capture. */
const linesOf = (path: string): readonly Captured[] =>
  gunzipSync(readFileSync(join(path, "requests.jsonl.gz")))
    .toString("utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Captured);

const captures = ["vllm-0.32.0", "vllm-0.23.0", "sglang-0.5.23"];

/** The characters by which byte-level vocabularies write bytes: printable ones stand for themselves. */
function byteOfCharacter(): Map<string, number> {
  const bytes = new Map<string, number>();
  let next = 256;
  for (let byte = 0; byte < 256; byte++) {
    const printable = (byte > 32 && byte < 127) || (byte > 160 && byte < 173) || byte > 173;
    bytes.set(String.fromCharCode(printable ? byte : next++), byte);
  }
  return bytes;
}

/** Turns token ids back into text, for a byte-level vocabulary. */
function decoderOf(folder: string): (ids: readonly number[]) => string {
  const { added_tokens: added, model } = JSON.parse(
    readFileSync(join(folder, "tokenizer.json"), "utf8"),
  ) as TokenizerFile;
  const byteOf = byteOfCharacter();
  const texts = new Map(
    Object.entries(model.vocab).map(([token, id]) => [
      id,
      Buffer.from(Array.from(token, (one) => byteOf.get(one) ?? 63)),
    ]),
  );
  for (const { id, content } of added) texts.set(id, Buffer.from(content));
  return (ids) => Buffer.concat(ids.map((id) => texts.get(id) ?? Buffer.from(`<no token ${id}>`))).toString("utf8");
}

describe.each(captures)("%s", (capture) => {
  const path = sharedPath("fixtures", capture);

  test.skipIf(path === undefined)("the text of every chat's prompt is what its messages render to", () => {
    const read = (name: string): string => readFileSync(join(path!, name), "utf8");
    const sessions = JSON.parse(read("sessions.json")) as { readonly session: number; readonly model: string }[];
    let compared = 0;
    for (const { path: url, status, session, request, prompt_token_ids: ids } of linesOf(path!)) {
      if (!url.endsWith("/chat/completions") || status !== 200 || !ids?.length || !request) continue;
      const folder = join(path!, "..", sessions.find((one) => one.session === session)!.model);
      const config = JSON.parse(readFileSync(join(folder, "tokenizer_config.json"), "utf8")) as Record<string, unknown>;
      const input = chatInputOf(request)!;
      const source = selectTemplate({ chatTemplate: config.chat_template, hasTools: Boolean(input.tools) })!;
      const template = compileChatTemplate(source, { clock: goldenClock, specialTokens: specialTokensOf(config) });
      expect(template.contentFormat).toBe("string");
      expect(template.render(input)).toBe(decoderOf(folder)(ids));
      compared++;
    }
    expect(compared).toBeGreaterThan(20);
  });

  test.skipIf(path === undefined)(
    "every chat has the engine's tokens, with what is remembered of those before",
    async () => {
      const sessions = JSON.parse(readFileSync(join(path!, "sessions.json"), "utf8")) as {
        readonly session: number;
        readonly model: string;
      }[];
      const models = new Map<string, ModelTokenizer>();
      const [kind, version] = capture.split("-");
      let compared = 0;
      for (const { path: url, status, session, request, prompt_token_ids: ids } of [
        ...linesOf(path!),
        ...linesOf(path!),
      ]) {
        if (!url.endsWith("/chat/completions") || status !== 200 || !ids?.length || !request) continue;
        const name = sessions.find((one) => one.session === session)!.model;
        const folder = join(path!, "..", name);
        const model =
          models.get(name) ??
          (await createModelTokenizer({
            ...{ model: name, mode: "local", folder, blockSize, hasher },
            ...{ clock: goldenClock, scheduler: createVirtualTime().scheduler, logger: createRecordingLogger() },
          }));
        models.set(name, model);
        const body = scanBody(Buffer.from(JSON.stringify(request)), 64);
        if (typeof body === "string") throw new TypeError(body);
        const view = await model.view({ endpoint: "chat", body, fields: {}, dialect: chatDialectOf(kind, version) });
        const whole = createBlockBuilder({ hasher, blockSize }).append(noBlocks, [Uint32Array.from(ids)]);
        expect(view).toMatchObject({ how: "tokens", count: ids.length, complete: true });
        expect(view.contents).toEqual(whole.contents);
        compared++;
      }
      expect(compared).toBeGreaterThan(40);
    },
  );
});
