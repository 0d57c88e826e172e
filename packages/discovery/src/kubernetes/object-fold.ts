import type { KubernetesObject } from "./watch-event.ts";

export interface ObjectFoldOptions<T> {
  readonly maxObjects: number;
  /** What is kept of an object: plain data. */
  readonly read: (object: KubernetesObject) => T;
}

/** The objects that a list and the events after it come to. */
export interface ObjectFold<T> {
  replace(objects: Iterable<KubernetesObject>): void;
  set(object: KubernetesObject): void;
  delete(name: string): void;
  /** Objects that were left out because there are too many. Only a new list can bring them back. */
  readonly leftOut: number;
  /** What is kept, in the order of the objects' names. */
  values(): readonly T[];
  /** Whether something that is kept has changed since this was asked last. */
  takeChanged(): boolean;
}

export function createObjectFold<T>({ maxObjects, read }: ObjectFoldOptions<T>): ObjectFold<T> {
  const kept = new Map<string, { readonly value: T; readonly text: string }>();
  let leftOut = 0;
  let hasChanged = false;

  const set = (object: KubernetesObject): void => {
    const known = kept.get(object.name);
    if (!known && kept.size >= maxObjects) {
      leftOut += 1;
      return;
    }
    const value = read(object);
    const text = JSON.stringify(value);
    if (known?.text === text) return;
    kept.set(object.name, { value, text });
    hasChanged = true;
  };
  const remove = (name: string): void => {
    if (kept.delete(name)) hasChanged = true;
  };
  return {
    set,
    delete: remove,
    replace(objects) {
      const listed = [...objects];
      const names = new Set(listed.map(({ name }) => name));
      for (const name of kept.keys()) if (!names.has(name)) remove(name);
      leftOut = 0;
      for (const object of listed) set(object);
    },
    get leftOut() {
      return leftOut;
    },
    values: () => [...kept].sort(([left], [right]) => (left < right ? -1 : 1)).map(([, { value }]) => value),
    takeChanged() {
      const result = hasChanged;
      hasChanged = false;
      return result;
    },
  };
}
