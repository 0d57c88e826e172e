import type { AdapterUse } from "./types.ts";

/** Names the adapters of the requests that an engine holds. */
export function adapterUse(
  held: Iterable<{ readonly chain: { readonly adapter: string | undefined }; readonly place: string }>,
): AdapterUse {
  const running = new Set<string>();
  const waiting = new Set<string>();
  for (const { chain, place } of held) {
    if (chain.adapter !== undefined) (place === "running" ? running : waiting).add(chain.adapter);
  }
  return { running: [...running], waiting: [...waiting] };
}
