import { expect, test } from "vitest";
import { lastImport, longPrompt, type PdSim, startPair, startPd, untilNothingHeld } from "./pd-client.ts";
import { at, type Json } from "./sim-client.ts";

const path = "/v1/completions";
const protocol = { protocol: "trtllm" } as const;
const body = { prompt: longPrompt, max_tokens: 6 };

/** The context phase, as text: its numbers are too long for JavaScript's. */
async function contextPhase(prefill: PdSim, more: string = "null"): Promise<string> {
  const asked = `{"request_type":"context_only","disagg_request_id":${more}}`;
  const answer = await prefill.post(path, JSON.stringify(body).replace(/}$/, `,"disaggregated_params":${asked}}`));
  expect(answer.status).toBe(200);
  return answer.text;
}

/** What the context phase says of itself, turned into what the generation phase must bring, digit by digit. */
function generationParams(answer: string): string {
  const params = /"disaggregated_params":(\{[^}]*\})/.exec(answer)?.[1] ?? "";
  return params.replace("context_only", "generation_only");
}

const generationPhase = (decode: PdSim, params: string, fields: Json = body) =>
  decode.post(path, JSON.stringify(fields).replace(/}$/, `,"disaggregated_params":${params}}`));

test("a context phase is one token and what the generation phase must bring along", async () => {
  const { prefill } = await startPair(protocol);
  const text = await contextPhase(prefill, "8446744073709551615");
  const answer = JSON.parse(text) as Json;
  expect(at(answer, "usage", "completion_tokens")).toBe(1);
  expect(at(answer, "choices", 0, "finish_reason")).toBe("length");
  expect(answer.prompt_token_ids).toHaveLength(100);
  expect(at(answer, "choices", 0, "disaggregated_params")).toMatchObject({
    request_type: "context_only",
    first_gen_tokens: [expect.any(Number)],
    encoded_opaque_state: expect.any(String),
    draft_tokens: null,
  });
  // Whole numbers of nineteen digits, without quotes.
  expect(text).toMatch(/"ctx_request_id":\d{19},/);
  expect(text).toContain('"disagg_request_id":8446744073709551615,');
  expect(await prefill.transfers()).toMatchObject({ pinned: 1, exports: [{ phase: "held" }] });
});

test("a generation phase fetches what it names, with the prompt as text or as tokens", async () => {
  const { prefill, decode } = await startPair(protocol);
  const alone = await startPd(protocol);
  const text = await contextPhase(prefill);
  const answer = await generationPhase(decode, generationParams(text));
  expect(answer.status).toBe(200);
  expect(await lastImport(decode)).toEqual([99, 99]);
  const whole = await alone.post(path, body);
  expect(at(answer.json, "choices", 0, "text")).toBe(at(whole.json, "choices", 0, "text"));
  await untilNothingHeld(prefill, decode);

  const other = await startPd(protocol);
  const second = await contextPhase(prefill);
  const prompt = (JSON.parse(second) as Json).prompt_token_ids;
  expect((await generationPhase(other, generationParams(second), { ...body, prompt })).status).toBe(200);
  expect(await lastImport(other)).toEqual([99, 99]);
  await untilNothingHeld(prefill, other);
});

test("a stream of the generation phase", async () => {
  const { prefill, decode } = await startPair(protocol);
  const params = generationParams(await contextPhase(prefill));
  const answer = await generationPhase(decode, params, { ...body, stream: true });
  expect(answer.text).toMatch(/data: \[DONE\]\n\n$/);
  expect(await lastImport(decode)).toEqual([99, 99]);
});

test("requests without a phase, or with both, are computed by one engine", async () => {
  const { prefill } = await startPair(protocol);
  for (const more of [{}, { disaggregated_params: { request_type: "context_and_generation" } }]) {
    const answer = await prefill.post(path, { ...body, ...more });
    expect(at(answer.json, "usage", "completion_tokens")).toBe(6);
    expect(at(answer.json, "choices", 0, "disaggregated_params")).toBeUndefined();
  }
  expect((await prefill.transfers()).pinned).toBe(0);
});

test.each([
  ['{"request_type":"all_of_it"}', "request_type"],
  ['{"request_type":"generation_only"}', "ctx_request_id"],
  ['{"request_type":"generation_only","ctx_request_id":7}', "opaque_state"],
  ['{"request_type":"generation_only","ctx_request_id":7,"encoded_opaque_state":"AAAA"}', "opaque_state"],
  ['{"request_type":"generation_only","ctx_request_id":7,"encoded_opaque_state":"bnVsbA=="}', "opaque_state"],
])("refuses %s", async (params, word) => {
  const { decode } = await startPair(protocol);
  const answer = await generationPhase(decode, params);
  expect(answer.status).toBe(400);
  expect(answer.text).toContain(word);
});

test("a context that is gone fails the generation", async () => {
  const { prefill, decode } = await startPair({ ...protocol, timeoutMs: 100 });
  const params = generationParams(await contextPhase(prefill));
  await untilNothingHeld(prefill);
  const answer = await generationPhase(decode, params);
  expect(answer.status).toBe(500);
  expect(answer.text).toContain("kv cache transfer");
});
