import type { ConfigTree } from "./schema/config-schema.ts";

/** What `auto` comes to. */
export function meshBackend(mesh: ConfigTree["mesh"]): "off" | "peers" | "redis" {
  if (mesh.backend !== "auto") return mesh.backend;
  if (mesh["redis-url"] !== undefined) return "redis";
  return mesh.port !== undefined || hasSeeds(mesh) ? "peers" : "off";
}

/** Whether it is said where other routers are found. */
export function hasSeeds(mesh: ConfigTree["mesh"]): boolean {
  const { seeds, "seeds-file": file, "seed-services": services, "seed-pods": pods } = mesh;
  return file !== undefined || seeds.length + services.length + pods.length > 0;
}
