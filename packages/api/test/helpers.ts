import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { EspalierError } from "@espalier/core";
import { sharedPath } from "@espalier/testing";
import { type Endpoint, endpoints, type RequestView, readRequestView } from "../src/index.ts";

export const limits = { maxDepth: 64 };

export function endpointAt(path: string): Endpoint {
  const endpoint = endpoints.find((candidate) => candidate.path === path);
  if (!endpoint) throw new Error(`no endpoint at ${path}`);
  return endpoint;
}

export const chat = endpointAt("/v1/chat/completions");
export const completions = endpointAt("/v1/completions");
export const generate = endpointAt("/generate");
export const anthropic = endpointAt("/v1/messages");
export const responses = endpointAt("/v1/responses");

/** The smallest chat body that is accepted. */
export const smallChat = { model: "m", messages: [{ role: "user", content: "hello" }] };

export function bytesOf(body: unknown): Buffer {
  return Buffer.from(typeof body === "string" ? body : JSON.stringify(body));
}

export function viewOf(endpoint: Endpoint, body: unknown): RequestView {
  return readRequestView(endpoint, Buffer.isBuffer(body) ? body : bytesOf(body), limits);
}

/** The catalogue error that `action` throws. Anything else fails the test. */
export function errorOf(action: () => unknown): EspalierError {
  try {
    action();
  } catch (error) {
    if (error instanceof EspalierError) return error;
    throw error;
  }
  throw new Error("nothing was thrown");
}

/** One HTTP exchange with a real engine. */
export interface Captured {
  readonly engine: string;
  readonly id: number;
  readonly path: string;
  readonly phase: string;
  readonly status: number;
  readonly request: Record<string, unknown> | null;
  readonly response?: unknown;
  readonly sse?: string;
}

/** A report of usage as the captured engines write it. */
export interface CapturedReport {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly cached_tokens?: number;
  readonly prompt_tokens_details?: { readonly cached_tokens: number };
}

/** Every captured exchange, or none when the captures are not at hand. */
export const captured: readonly Captured[] = ["vllm-0.32.0", "vllm-0.23.0", "sglang-0.5.23"].flatMap((engine) => {
  const path = sharedPath("fixtures", engine, "requests.jsonl.gz");
  if (!path) return [];
  const lines = gunzipSync(readFileSync(path)).toString("utf8").trimEnd().split("\n");
  return lines.map((line) => ({ engine, ...(JSON.parse(line) as Omit<Captured, "engine">) }));
});

/** The exchanges whose request goes to an endpoint that the router reads. */
export const capturedRequests = captured.filter(
  ({ path, request }) => request !== null && endpoints.some((endpoint) => endpoint.path === path),
);

/** Cuts bytes at the given fractions of their length. */
export function cutAt(bytes: Buffer, fractions: readonly number[]): Buffer[] {
  const offsets = [...new Set(fractions.map((fraction) => Math.floor(fraction * bytes.length)))].sort((a, b) => a - b);
  const cuts = [0, ...offsets, bytes.length];
  return cuts.slice(1).map((end, index) => bytes.subarray(cuts[index], end));
}
