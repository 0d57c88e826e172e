import { readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { sharedPath } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { type Json, startSim, type TestSim } from "./sim-client.ts";

const fixtures = sharedPath("fixtures");

interface Captured {
  readonly session: number;
  readonly phase: string;
  readonly path: string;
  readonly status: number;
  readonly request: Json;
  readonly prompt_token_ids: readonly number[] | null;
}

const read = (...path: string[]): Buffer => readFileSync(join(fixtures as string, ...path));

/** The requests of a capture whose prompts its engine told, by the model that they were for. */
function promptsOf(folder: string): Map<string, Captured[]> {
  const sessions = JSON.parse(read(folder, "sessions.json").toString()) as { session: number; model: string }[];
  const lines = gunzipSync(read(folder, "requests.jsonl.gz")).toString().trim().split("\n");
  const found = new Map<string, Captured[]>();
  for (const line of lines) {
    const captured = JSON.parse(line) as Captured;
    if (!captured.prompt_token_ids || captured.status !== 200) continue;
    // SGLang leaves the tools out of this prompt, its own /tokenize does not.
    if (captured.request.tool_choice === "none" && folder.startsWith("sglang")) continue;
    const model = sessions.find(({ session }) => session === captured.session)?.model ?? "";
    found.set(model, [...(found.get(model) ?? []), captured]);
  }
  return found;
}

/** Asks the simulated engine what it makes of a captured request. */
async function tokensOf(sim: TestSim, { path, request }: Captured): Promise<unknown> {
  const { model: _, ...fields } = request;
  if (path === "/v1/chat/completions") return (await sim.post("/tokenize", fields)).json.tokens;
  const prompt = path === "/generate" ? (fields.text ?? fields.input_ids) : fields.prompt;
  if (typeof prompt !== "string") return prompt;
  return (await sim.post("/tokenize", { prompt, add_special_tokens: fields.add_special_tokens ?? true })).json.tokens;
}

describe.skipIf(!fixtures)("prompts as the real engines saw them", () => {
  test.each(["vllm-0.23.0", "vllm-0.32.0", "sglang-0.5.23"])("%s", async (folder) => {
    let compared = 0;
    for (const [model, captured] of promptsOf(folder)) {
      const sim = await startSim({ tokenizer: join(fixtures as string, model) });
      for (const one of captured) {
        expect(await tokensOf(sim, one), `${folder}, ${one.phase}`).toEqual(one.prompt_token_ids);
        compared += 1;
      }
    }
    expect(compared).toBeGreaterThan(80);
  });
});
