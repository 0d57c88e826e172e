import type { HttpClient } from "@espalier/common";
import type { CompiledConfig } from "@espalier/config";

/**
 * The client for control traffic to engines, with the engines' key where there is one. Which pool an engine belongs to
 * is known only once it has told its models, and an engine with a key tells them to nobody else; so the key is sent when
 * all pools that have one have the same.
 */
export function createControlClient(http: HttpClient, { pools }: Pick<CompiledConfig, "pools">): HttpClient {
  const keys = new Set(pools.flatMap(({ engineApiKey }) => (engineApiKey ? [engineApiKey.reveal()] : [])));
  const [key] = keys;
  if (key === undefined || keys.size > 1) return http;
  return (request) => http({ ...request, headers: { authorization: `Bearer ${key}`, ...request.headers } });
}
