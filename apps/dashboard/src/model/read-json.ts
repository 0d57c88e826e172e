/** Readers of what other programs wrote, perhaps of another version: what is not as expected counts as absent. */

export type JsonObject = Readonly<Record<string, unknown>>;

/** Reads a value of any kind. `key` is where it stands in an object, if that has another name here. */
export interface Reader<Value> {
  (value: unknown): Value;
  readonly key?: string;
}

export function asObject(value: unknown): JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as JsonObject) : {};
}

export function asList(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

export function asText(value: unknown, otherwise = ""): string {
  return typeof value === "string" ? value : otherwise;
}

export function asTextOrNull(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

export function asNumber(value: unknown, otherwise = 0): number {
  return typeof value === "number" && Number.isFinite(value) ? value : otherwise;
}

export function asNumberOrNull(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

export function isTrue(value: unknown): boolean {
  return value === true;
}

/** A text that is `otherwise` where there is none. */
export const textOr =
  (otherwise: string) =>
  (value: unknown): string =>
    asText(value, otherwise);

/** A list whose elements are all read in one way. */
export const listOf =
  <Value>(read: Reader<Value>) =>
  (value: unknown): readonly Value[] =>
    asList(value).map((one) => read(one));

/** A field that has the name `key` in the JSON. */
export const from = <Value>(key: string, read: Reader<Value>): Reader<Value> =>
  Object.assign((value: unknown) => read(value), { key });

/** An object with these fields. What is left out of it is read as `undefined`. */
export function objectOf<Fields extends Readonly<Record<string, Reader<unknown>>>>(
  fields: Fields,
): Reader<{ readonly [Name in keyof Fields]: ReturnType<Fields[Name]> }> {
  return (value) => {
    const object = asObject(value);
    const read = Object.entries(fields).map(([name, field]) => [name, field(object[field.key ?? name])]);
    return Object.fromEntries(read);
  };
}
