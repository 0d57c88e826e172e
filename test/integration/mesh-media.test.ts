import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { waitFor } from "@espalier/testing";
import { shippedModelFolder } from "@espalier/tokenizer";
import { afterEach, expect, test } from "vitest";
import { publishingSims } from "./cache-rig.ts";
import { ask, type Turn, wordsOf } from "./cached-turns.ts";
import type { Json } from "./client.ts";
import { meshRouters, untilFolded, untilRead } from "./mesh-rig.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
const folders: string[] = [];
afterEach(async () => {
  await rig.close();
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
});

/** Writes an image as vision models of Qwen do: a placeholder between two special tokens. */
const chat_template =
  "{% for message in messages %}<|im_start|>{{ message.role }}\n{% for part in message.content %}" +
  "{% if part.type == 'text' %}{{ part.text }}{% else %}<|call|><|image|><|call|>{% endif %}{% endfor %}<|im_end|>\n" +
  "{% endfor %}<|im_start|>assistant\n";

/** The small model with a template for images. */
function visionModel(): string {
  const folder = mkdtempSync(join(tmpdir(), "espalier-vision-"));
  folders.push(folder);
  cpSync(shippedModelFolder(), folder, { recursive: true });
  const path = join(folder, "tokenizer_config.json");
  writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, "utf8")), chat_template }));
  return folder;
}

const text = (content: string): Json => ({ type: "text", text: content });
const image = (bytes: string): Json => ({
  type: "image_url",
  image_url: { url: `data:image/png;base64,${Buffer.from(bytes).toString("base64")}` },
});
const system = { role: "system", content: wordsOf(1, 40) };

async function start(blockSize = 16) {
  const model = visionModel();
  const sims = await publishingSims(rig, 1, { tokenizer: model, mediaTokens: 50, parameters: { blockSize } });
  const config = { tokenizers: [{ path: model }] };
  const routers = await meshRouters(rig, 2, sims, { config });
  await untilRead(routers, 1);
  return { sims, routers };
}

const bodyOf = (content: readonly Json[], more: Json = {}): Json => ({
  messages: [system, { role: "user", content }],
  max_tokens: 1,
  ...more,
});

const isKnown = async (router: RunningRouter, content: readonly Json[]): Promise<boolean> => {
  const { json } = await router.admin("POST", "/admin/explain", { model: "tiny", ...bodyOf(content) });
  return (json.prompt as Json).from === "tokens";
};

const untilKnown = (routers: readonly RunningRouter[], content: readonly Json[]): Promise<unknown> =>
  waitFor(async () => (await Promise.all(routers.map((router) => isKnown(router, content)))).every(Boolean), {
    what: "pictures that all routers know",
    deadlineMs: 15_000,
  });

test("an image that one router's user sent is matched by facts at every router, in other conversations", async () => {
  const { sims, routers } = await start();
  const [one, two] = routers as [RunningRouter, RunningRouter];
  const send = async (router: RunningRouter, content: readonly Json[], more: Json = {}): Promise<Turn> => {
    const turn = await ask(router, "/v1/chat/completions", bodyOf(content, more));
    expect(turn.status).toBe(200);
    await untilFolded(routers, sims);
    return turn;
  };
  const [first, second] = [image("first"), image("second")];
  expect(await isKnown(two, [first, text("go")])).toBe(false);
  await send(one, [first, text(wordsOf(2, 30))]);
  await untilKnown(routers, [first, text("go")]);

  // Another question about it: the engine has the system prompt and the image.
  const other = await send(two, [first, text(wordsOf(3, 30))]);
  expect(other.cached).toBeGreaterThan(80);
  expect(other.predicted).toBe(other.cached);
  const again = await send(one, [first, text(wordsOf(3, 30))]);
  expect([again.predicted, again.cached]).toEqual([again.cached, Math.floor((again.promptTokens - 1) / 16) * 16]);

  // At another place, where nobody had it: nothing is cached after the system prompt.
  const moved = await send(two, [text(wordsOf(4, 20)), first, text(wordsOf(2, 30))]);
  expect(moved.predicted).toBe(moved.cached);
  expect(moved.cached).toBeLessThan(other.cached);

  // Another image in its place.
  const different = await send(one, [second, text(wordsOf(2, 30))]);
  expect(different.cached).toBeLessThan(other.cached);
  await untilKnown(routers, [second, first, text("go")]);
  for (const content of [
    [second, text(wordsOf(2, 30))],
    [second, first, text(wordsOf(5, 30))],
  ]) {
    const turn = await send(two, content);
    expect([turn.predicted, turn.cached > 80]).toEqual([turn.cached, true]);
  }
  const both = await send(one, [second, first, text(wordsOf(6, 30))]);
  expect([both.predicted, both.cached > 130]).toEqual([both.cached, true]);

  // Rows do not depend on the tenant, hits do.
  for (const [tenant, expected] of [
    ["a", false],
    ["a", true],
    ["b", false],
  ] as const) {
    const turn = await send(two, [first, text(wordsOf(2, 30))], { cache_salt: tenant });
    expect([turn.predicted, turn.cached > 0]).toEqual([turn.cached, expected]);
  }
});

test.each([16, 32])("several images of one prompt are learned at once, with blocks of %d tokens", async (blockSize) => {
  const { sims, routers } = await start(blockSize);
  const [one, two] = routers as [RunningRouter, RunningRouter];
  const named = { type: "image_url", image_url: null, uuid: "picture 1" };
  const content = [image("a"), image("b"), text(wordsOf(7, 9)), named, text(wordsOf(8, 30))];
  await ask(one, "/v1/chat/completions", bodyOf(content));
  await untilFolded(routers, sims);
  await untilKnown(routers, content);
  const turn = await ask(two, "/v1/chat/completions", bodyOf([...content, image("a"), text("?")]));
  expect(turn.cached).toBeGreaterThan(190);
  expect(turn.predicted).toBe(turn.cached);
});

test("an image of some megabytes is learned too", async () => {
  const { sims, routers } = await start();
  const [one, two] = routers as [RunningRouter, RunningRouter];
  const large = image("pixel".repeat(600_000));
  await ask(one, "/v1/chat/completions", bodyOf([large, text(wordsOf(2, 30))]));
  await untilFolded(routers, sims);
  const again = (router: RunningRouter): Promise<Turn> =>
    ask(router, "/v1/chat/completions", bodyOf([large, text(wordsOf(3, 30))]));
  // An explanation does not read bodies of this size, so the answers show it: all full blocks are predicted.
  const isExact = async (router: RunningRouter): Promise<boolean> => {
    const { predicted, cached, promptTokens } = await again(router);
    return cached === Math.floor((promptTokens - 1) / 16) * 16 && predicted === cached;
  };
  const areExact = async (): Promise<boolean> => (await isExact(one)) && (await isExact(two));
  await waitFor(areExact, { what: "hits on a large image", deadlineMs: 15_000 });
});
