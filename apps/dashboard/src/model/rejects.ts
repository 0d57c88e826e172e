import type { Overview } from "./overview.ts";

/** How long a queue that has rejected a request is told of. */
export const rejectingMs = 60_000;

/**
 * Watches queues: routers count what they rejected since their start, and only what is added is of now.
 *
 * @returns takes the latest overviews of the routers that are followed; names the classes that have rejected requests lately
 */
export function watchRejects(): (
  live: readonly Pick<Overview, "links" | "queues">[],
  nowMs: number,
) => readonly string[] {
  let known: ReadonlyMap<string, { readonly shed: number; readonly grewMs: number }> = new Map();
  return (live, nowMs) => {
    const rejecting = new Set<string>();
    const next = new Map<string, { readonly shed: number; readonly grewMs: number }>();
    for (const { links, queues } of live) {
      for (const { name, shed } of queues ?? []) {
        const key = `${links.router} ${name}`;
        const before = known.get(key);
        const hasGrown = before !== undefined && shed > before.shed;
        const grewMs = hasGrown ? nowMs : (before?.grewMs ?? Number.NEGATIVE_INFINITY);
        next.set(key, { shed, grewMs });
        if (nowMs - grewMs < rejectingMs) rejecting.add(name);
      }
    }
    known = next;
    return [...rejecting];
  };
}
