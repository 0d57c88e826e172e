import type { Cancel } from "@espalier/common";
import type { Journals } from "../documents/journal-store.ts";
import type { Registry, RegistryDocument } from "../registry/registry.ts";

/** Lets the registry's documents take part in the exchange: the present one, and the next while all move to it. */
export function shareRegistry(registry: Registry, store: Journals): void {
  const attached = new Map<string, Cancel>();
  const follow = ({ name, doc, isOpen }: RegistryDocument): void => {
    if (isOpen && !attached.has(name)) attached.set(name, store.attachShared(name, doc));
    else if (!isOpen) {
      attached.get(name)?.();
      attached.delete(name);
    }
  };
  for (const document of registry.documents()) follow(document);
  registry.onDocument(follow);
  store.onUnknown((name) => {
    const doc = registry.open(name);
    if (doc) follow({ name, doc, isOpen: true });
  });
}
