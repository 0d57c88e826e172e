import { EspalierError } from "@espalier/common";
import { EnginePool, type EnginePoolOptions } from "./engine-pool.ts";

/** Engines with a pool at a time. Beyond, the pool opened first is closed gracefully; it comes back when asked for. */
const maxPools = 16_384;

/** One pool per engine URL, opened at first use. */
export interface UpstreamPools {
  /** @throws EspalierError `upstream_connect_failed` when the URL is not an http or https one */
  of(url: string): EnginePool;
  /** Forgets an engine: what runs may finish, idle connections close now. */
  drop(url: string): void;
  /** Forgets every engine. */
  close(): void;
}

export function createUpstreamPools(options: EnginePoolOptions): UpstreamPools {
  const pools = new Map<string, EnginePool>();
  const drop = (url: string): void => {
    pools.get(url)?.close();
    pools.delete(url);
  };
  const open = (url: string): EnginePool => {
    const [oldest] = pools.keys();
    if (pools.size >= maxPools && oldest !== undefined) drop(oldest);
    const pool = new EnginePool(parseUrl(url), options);
    pools.set(url, pool);
    return pool;
  };
  return {
    of: (url) => pools.get(url) ?? open(url),
    drop,
    close() {
      for (const url of [...pools.keys()]) drop(url);
    },
  };
}

function parseUrl(url: string): URL {
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  if (parsed?.protocol === "http:" || parsed?.protocol === "https:") return parsed;
  throw new EspalierError("upstream_connect_failed", "The engine's URL is not an http or https URL.");
}
