import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Clock, systemClock } from "@espalier/core";
import { createChatRenderer, createTextTokenizer, loadTokenizerFiles, shippedModelFolder } from "@espalier/tokenizer";
import { onTestFinished } from "vitest";
import { type SeenRequest, temporaryServer } from "./temporary.ts";

/** What an engine is asked to tokenise. */
interface TokenizeRequest {
  readonly model: string;
  readonly prompt?: string;
  readonly messages?: readonly { readonly role: string; readonly content: unknown }[];
  readonly tools?: readonly unknown[];
}

export interface TokenizeCall {
  readonly request: TokenizeRequest;
  /** The tokens that an engine with the same tokenizer and template makes of it. */
  readonly tokens: readonly number[];
  readonly response: ServerResponse;
}

export interface FakeEngine {
  readonly url: string;
  readonly asked: readonly TokenizeRequest[];
  readonly paths: readonly string[];
}

/**
 * An engine of the model that ships with the router, gone after the test.
 *
 * @param answer what it answers to `/tokenize`; the right tokens unless given
 * @param models the body of its `/v1/models`
 */
export async function startFakeEngine({
  answer = ({ tokens, response }) => sendTokens(response, tokens),
  models = JSON.stringify({ data: [{ id: "tiny" }, { id: "other" }] }),
  modelsStatus = 200,
}: {
  readonly answer?: (call: TokenizeCall) => void;
  readonly models?: string;
  readonly modelsStatus?: number;
} = {}): Promise<FakeEngine> {
  const tokenize = await createReference();
  const asked: TokenizeRequest[] = [];
  const paths: string[] = [];
  const url = await temporaryServer(({ path, method, body, response }: SeenRequest) => {
    paths.push(`${method} ${path}`);
    if (path === "/v1/models") return void response.writeHead(modelsStatus).end(models);
    if (path !== "/tokenize") return void response.writeHead(404).end();
    const request = JSON.parse(body) as TokenizeRequest;
    asked.push(request);
    answer({ request, tokens: tokenize(request), response });
  });
  return { url, asked, paths };
}

/** Answers as vLLM does, with more than is asked for. */
export function sendTokens(response: ServerResponse, tokens: readonly unknown[]): void {
  const answer = { count: tokens.length, max_model_len: 4_096, tokens, token_strs: null };
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer));
}

async function createReference(clock: Clock = systemClock): Promise<(request: TokenizeRequest) => readonly number[]> {
  const files = await loadTokenizerFiles(shippedModelFolder());
  const tokenizer = createTextTokenizer(files);
  const renderer = createChatRenderer(files, clock);
  return ({ prompt, model: _, ...fields }) => {
    const text = prompt ?? renderer.render({ endpoint: "chat", fields: { ...fields } }).text;
    return [...tokenizer.encode(text, { addSpecialTokens: prompt !== undefined })];
  };
}

/** A copy of the shipped model whose configuration is another; gone after the test. */
export function modelFolder(config: object): string {
  const folder = mkdtempSync(join(tmpdir(), "espalier-model-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  cpSync(shippedModelFolder(), folder, { recursive: true });
  writeFileSync(join(folder, "tokenizer_config.json"), JSON.stringify(config));
  return folder;
}
