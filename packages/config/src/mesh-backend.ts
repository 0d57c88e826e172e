import type { ConfigTree } from "./schema/config-schema.ts";

/** What `auto` comes to. */
export function meshBackend({
  backend,
  port,
  seeds,
  "redis-url": redisUrl,
}: ConfigTree["mesh"]): "off" | "peers" | "redis" {
  if (backend !== "auto") return backend;
  if (redisUrl !== undefined) return "redis";
  return port !== undefined || seeds.length > 0 ? "peers" : "off";
}
