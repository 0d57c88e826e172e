/** LoRA adapters of an engine, loaded ones and others. */
export const maxAdapters = 64;

/** The LoRA adapters that an engine serves. */
export interface AdapterRegistry {
  /** In the order in which they came. */
  readonly names: readonly string[];
  /** @returns false when there are `maxAdapters` already */
  add(name: string): boolean;
  /** @returns whether there was one of this name */
  remove(name: string): boolean;
  /** A new process knows those that it was started with. */
  reset(): void;
}

/** @param initial those that the engine is started with */
export function createAdapterRegistry(initial: readonly string[]): AdapterRegistry {
  let names = initial;
  return {
    get names() {
      return names;
    },
    add(name) {
      if (names.length >= maxAdapters) return false;
      names = [...names, name];
      return true;
    },
    remove(name) {
      const kept = names.filter((known) => known !== name);
      const isKnown = kept.length < names.length;
      names = kept;
      return isKnown;
    },
    reset() {
      names = initial;
    },
  };
}
