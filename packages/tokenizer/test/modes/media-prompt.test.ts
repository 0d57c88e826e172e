import { readFileSync } from "node:fs";
import { join } from "node:path";
import { silentLogger, systemClock, systemScheduler } from "@espalier/core";
import { expect, test } from "vitest";
import { createChatRenderer } from "../../src/chat/chat-renderer.ts";
import { mediaHash } from "../../src/chat/media-part.ts";
import { createLocalMode } from "../../src/modes/local-mode.ts";
import { createPromptHasher } from "../../src/prompt/prompt-blocks.ts";
import { createPromptEncoder } from "../../src/prompt/prompt-encoder.ts";
import { promptSource } from "../../src/prompt-request.ts";
import { createTextTokenizer } from "../../src/text/text-tokenizer.ts";
import { loadTokenizerFiles, shippedModelFolder } from "../../src/tokenizer-files.ts";

const blockSize = 4;
const hasher = createPromptHasher();
const files = await loadTokenizerFiles(shippedModelFolder());
const tokenizer = createTextTokenizer(files);

function modeWith(image: string) {
  const chatTemplate =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for part in m.content %}{% if part.type == 'text' %}" +
    `{{ part.text }}{% else %}${image}{% endif %}{% endfor %}<|im_end|>{% endfor %}`;
  const encoder = createPromptEncoder({ tokenizer, hasher, blockSize });
  const renderer = createChatRenderer({ ...files, chatTemplate, additionalTemplates: new Map() } as never, systemClock);
  const ports = { scheduler: systemScheduler, clock: systemClock, logger: silentLogger };
  const mode = createLocalMode({ ...ports, folder: shippedModelFolder(), encoder, renderer, hasher, blockSize });
  return {
    async view(content: readonly object[], more: object = {}) {
      const request = { endpoint: "chat", fields: { messages: [{ role: "user", content }], ...more } };
      return mode.view(request, promptSource(request));
    },
    tokensOf: (text: string) => tokenizer.encode(text, { addSpecialTokens: false }),
  };
}

const image = (data: string, more: object = {}) => ({
  type: "image_url",
  image_url: { url: `data:image/png;base64,${data}` },
  ...more,
});
const text = (content: string) => ({ type: "text", text: content });

test("a chat's segments are its tokens, each with a part's placeholder at its end", async () => {
  const { view, tokensOf } = modeWith("<|call|><|image|><|call|>");
  const { media } = await view([text("go and see"), image("AA"), image("BB"), text("which is older?")]);
  const written =
    "<|im_start|>user\ngo and see<|call|><|image|><|call|><|call|><|image|><|call|>which is older?<|im_end|>";
  const { before, segments, parts, isWhole } = media!;
  expect(before.tokenCount % blockSize).toBe(before.leftover.length);
  const rest = [...before.leftover, ...segments.flatMap((segment) => [...segment])];
  const all = [...tokensOf(written)];
  expect(rest).toEqual(all.slice(before.tokenCount - before.leftover.length));
  expect(segments.map((segment) => segment.at(-1))).toEqual([4_099, 4_099, 4_098]);
  expect([parts.map(({ width }) => width), isWhole]).toEqual([[3, 3], true]);
  expect(parts.map(({ hash }) => hash)).toEqual([mediaHash(image("AA"), ""), mediaHash(image("BB"), "")]);
});

test("text around the special tokens belongs to the segments, a placeholder without any has none", async () => {
  const { media } = await modeWith("\nPicture: <|image|>\n").view([text("a"), image("AA"), text("b")]);
  expect(media!.segments.map((segment) => segment.at(-1))).toEqual([4_100, 4_098]);
  const bare = await modeWith("[picture]").view([text("a"), image("AA"), text("b")]);
  expect(bare.media).toBeUndefined();
  expect(bare.blocks).toBeGreaterThan(bare.textUntil);
});

test("the hash of a part is that of its content, not of its media type", () => {
  const hashes = [
    image("AA"),
    image("AB"),
    image("AA", { uuid: "one" }),
    { type: "image_url", image_url: { url: "https://a/b.png" } },
    { type: "video_url", video_url: { url: "https://a/b.png" } },
  ].map((part) => mediaHash(part, ""));
  expect(new Set([...hashes, mediaHash(image("AA"), "{}")]).size).toBe(hashes.length + 1);
  const asJpeg = { type: "image_url", image_url: { url: "data:image/jpeg;base64,AA" } };
  expect(mediaHash(asJpeg, "")).toBe(hashes[0]);
  expect(mediaHash({ ...asJpeg, uuid: "one" }, "")).toBe(mediaHash({ type: "image_url", uuid: "one" }, ""));
  expect(mediaHash({ type: "image_url", file_id: 3 }, "")).toBeUndefined();
});

test("files of the shipped model are as the tests above take them", () => {
  const { added_tokens: added } = JSON.parse(readFileSync(join(shippedModelFolder(), "tokenizer.json"), "utf8"));
  expect(added.map(({ id }: { id: number }) => id)).toEqual([4_096, 4_097, 4_098, 4_099, 4_100]);
});
