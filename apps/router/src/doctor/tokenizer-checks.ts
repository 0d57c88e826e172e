import { existsSync } from "node:fs";
import { join } from "node:path";
import { type FleetProbe, globPattern } from "@espalier/server";
import { createTextTokenizer, fetchTokens, loadTokenizerFiles } from "@espalier/tokenizer";
import { type Finding, fail, pass, reasonOf, warn } from "./check.ts";
import { compareTokenizer, plainText } from "./compare-tokenizer.ts";
import type { Examined } from "./examined.ts";
import { eachOf, upEngines } from "./examined-engines.ts";

/** Whether tokenizers load, and produce the tokens of the engines. */
export async function checkTokenizers({ config, fleet }: Examined): Promise<readonly Finding[]> {
  const broken = new Map<number, Finding>();
  for (const [at, { mode, path }] of config.tokenizers.entries()) {
    // Of an absent folder the check of the configuration tells.
    if (mode !== "local" || path === undefined || !existsSync(join(path, "tokenizer.json"))) continue;
    await loadTokenizerFiles(path)
      .then(createTextTokenizer)
      .catch((error: unknown) => {
        const fix = "use the model's files, complete: prompts of its models would be matched by bytes";
        broken.set(at, fail(path, reasonOf(error), { setting: `tokenizers[${at}].path`, fix }));
      });
  }
  const engines = upEngines(fleet);
  const bases = fleet.fleet.models().filter(({ parent }) => parent === undefined);
  const compared = await eachOf(bases, async ({ id: model }): Promise<readonly Finding[]> => {
    const at = config.tokenizers.findIndex(({ models }) => models.some((glob) => globPattern(glob).test(model)));
    const { path, mode } = config.tokenizers[at] ?? {};
    const serving = engines.filter(({ models }) => models?.some(({ id }) => id === model));
    const setting = `tokenizers[${at}].path`;
    if (mode === "engine")
      return eachOf(serving.slice(0, 1), ({ url }) => checkTokenizeApi(fleet, model, url, setting));
    if (mode !== "local" || path === undefined || broken.has(at) || !existsSync(join(path, "tokenizer.json")))
      return [];
    return eachOf(serving, ({ url }) =>
      compare({ fleet, model, url, path, setting, isFirst: url === serving[0]?.url }),
    );
  });
  return [...broken.values(), ...compared];
}

async function checkTokenizeApi(
  { http }: FleetProbe,
  model: string,
  url: string,
  setting: string,
): Promise<readonly Finding[]> {
  const target = `${model} at ${url}`;
  try {
    const body = JSON.stringify({ model, prompt: plainText });
    const { length } = await fetchTokens({ http, url, body, timeoutMs: 10_000 });
    return [pass(target, `tokenizes prompts: ${length} tokens`)];
  } catch (error) {
    const fix = "set the folder of the model's files: without /tokenize, prompts are matched by bytes";
    return [fail(target, reasonOf(error), { setting: setting.replace(".path", ".mode"), fix })];
  }
}

interface Comparison {
  readonly fleet: FleetProbe;
  readonly model: string;
  readonly url: string;
  readonly path: string;
  readonly setting: string;
  /** Of the other engines of the model, a sample of prompts is enough. */
  readonly isFirst: boolean;
}

async function compare({ fleet, model, url, path, setting, isFirst }: Comparison): Promise<readonly Finding[]> {
  const target = `${model} at ${url}`;
  const fix = `\`espalier verify-tokenizer --model ${path} --engine ${url}\` shows the difference; use the engine's files`;
  try {
    const files = await loadTokenizerFiles(path);
    const { rows: compared, hasTemplate } = await compareTokenizer({
      http: fleet.http,
      url,
      model,
      files,
      isSample: !isFirst,
    });
    const same = compared.filter(({ ok }) => ok).length;
    const unasked = compared.filter(({ error }) => error?.includes("/tokenize answered 404"));
    if (unasked.length === compared.length) {
      const advice = { setting, fix: "compare the files with the engine's by hand" };
      return [warn(target, "loaded, but not compared: the engine has no /tokenize", advice)];
    }
    if (same < compared.length) {
      return [fail(target, `${same} of ${compared.length} prompts match the engine's tokens`, { setting, fix })];
    }
    if (hasTemplate) return [pass(target, `${same} prompts match the engine's tokens`)];
    const advice = { setting, fix: "add the model's chat_template.jinja or tokenizer_config.json" };
    return [warn(target, `${same} prompts match; without a chat template, chats are matched by bytes`, advice)];
  } catch (error) {
    return [fail(target, reasonOf(error), { setting, fix })];
  }
}
