import { type HttpClient, isJsonObject, parseJson, systemClock, systemScheduler } from "@espalier/core";
import { createProxy } from "@espalier/engines";
import type { CompiledConfig, OverflowConfig } from "../config/index.ts";
import { backendHeaders } from "./overflow.ts";

/** What a backend answers when it is asked for its models. */
export interface OverflowProbe {
  /** 0 without an answer. */
  readonly status: number;
  /** Why there was none. */
  readonly error: unknown;
  /** Undefined where its answer is no list. */
  readonly models: ReadonlySet<string> | undefined;
}

/** Longest wait for a list of models. */
const timeoutMs = 10_000;
/** Catalogues of hundreds of models have some kilobytes for each. */
const maxBytes = 4_194_304;

/**
 * Asks each overflow backend for its models, which costs nothing, by the connections and the key with which a router sends
 * requests to it.
 *
 * @returns what each said, in the order of the configuration
 */
export async function probeOverflow(
  config: Pick<CompiledConfig, "overflow" | "timeouts" | "limits">,
): Promise<readonly OverflowProbe[]> {
  const { timeouts, limits, overflow } = config;
  const proxy = createProxy({
    ...{ clock: systemClock, scheduler: systemScheduler },
    options: { ...timeouts, ...limits },
  });
  await proxy.start();
  try {
    return await Promise.all(overflow.map((backend) => askModels(proxy.httpClient, backend)));
  } finally {
    await proxy.stop();
  }
}

async function askModels(http: HttpClient, backend: OverflowConfig): Promise<OverflowProbe> {
  // Anthropic's list has pages.
  const query = backend.api === "anthropic" ? "?limit=1000" : "";
  const pairs = backendHeaders(backend, []);
  const headers = Object.fromEntries(pairs.flatMap((text, at) => (at % 2 === 0 ? [[text, pairs[at + 1]!]] : [])));
  try {
    const { status, body } = await http({ url: `${backend.url}/v1/models${query}`, headers, timeoutMs, maxBytes });
    return { status, error: undefined, models: status === 200 ? readModels(body) : undefined };
  } catch (error) {
    return { status: 0, error, models: undefined };
  }
}

function readModels(body: string): ReadonlySet<string> | undefined {
  const answer = parseJson(body);
  const data = isJsonObject(answer) ? answer.data : undefined;
  if (!Array.isArray(data)) return undefined;
  return new Set(data.flatMap((one) => (isJsonObject(one) && typeof one.id === "string" ? [one.id] : [])));
}
