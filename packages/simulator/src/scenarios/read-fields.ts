import { didYouMean, EspalierError } from "@espalier/core";

/** Refuses a field of a file, by its path. */
export type Fail = (field: string, problem: string) => never;

/** Reads one value of a file, at a path for messages. */
export type Read<Value> = (value: unknown, field: string, fail: Fail) => Value;

/** What an object's readers make of it. */
type ValuesOf<Readers extends Readonly<Record<string, Read<unknown>>>> = {
  readonly [Name in keyof Readers]: ReturnType<Readers[Name]>;
};

/**
 * Parses a JSON file of a user.
 *
 * @param path of the file, for messages
 * @throws EspalierError `config_invalid` naming the file and the field
 */
export function readFile<Value>(text: string, path: string, read: Read<Value>): Value {
  const fail: Fail = (field, problem) => {
    throw new EspalierError("config_invalid", `${path}: ${field}${field === "" ? "" : ": "}${problem}`, {
      param: field === "" ? path : field,
    });
  };
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    fail("", `is not valid JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
  return read(value, "", fail);
}

/** What was written, in few characters. */
function shown(value: unknown): string {
  return value === undefined ? "absent" : JSON.stringify(value).slice(0, 60);
}

/** The path of a field of an object. */
export const inside = (field: string, name: string): string => (field === "" ? name : `${field}.${name}`);

/** A value that satisfies a condition. */
const checked =
  <Value>(isGood: (value: unknown) => boolean, problem: string): Read<Value> =>
  (value, field, fail) =>
    isGood(value) ? (value as Value) : fail(field, `${problem}, is ${shown(value)}`);

const isWhole = (value: unknown): value is number => Number.isInteger(value);

export const whole = (least: number, most: number): Read<number> =>
  checked(
    (value) => isWhole(value) && value >= least && value <= most,
    `must be a whole number from ${least} to ${most}`,
  );

/** The largest whole number for a parameter. */
const maxCount = 2 ** 31 - 1;
export const count = whole(1, maxCount);
export const countOrNone = whole(0, maxCount);

export const amount = (unit: string): Read<number> =>
  checked((value) => Number.isFinite(value) && (value as number) >= 0, `must be a number of ${unit} from 0 up`);
export const milliseconds = amount("milliseconds");
export const seconds = amount("seconds");

/** A number above 0. */
export const positive: Read<number> = checked(
  (value) => Number.isFinite(value) && (value as number) > 0,
  "must be a number above 0",
);

/** Of any size and sign. */
export const number: Read<number> = (value, field, fail) =>
  typeof value === "number" ? value : fail(field, `must be a number, is ${shown(value)}`);

export const share: Read<number> = checked(
  (value) => typeof value === "number" && value >= 0 && value <= 1,
  "must be a number from 0 to 1",
);

export const string: Read<string> = checked((value) => typeof value === "string", "must be a string");
export const boolean: Read<boolean> = checked((value) => typeof value === "boolean", "must be true or false");

export const oneOf = <const Choice>(...choices: readonly Choice[]): Read<Choice> =>
  checked((value) => choices.includes(value as Choice), `must be one of ${choices.join(", ")}`);

/** One of many names: the nearest is suggested. */
export const named =
  <Name extends string>(names: readonly Name[]): Read<Name> =>
  (value, field, fail) =>
    names.includes(value as Name)
      ? (value as Name)
      : fail(field, `must be one of ${names.join(", ")}, is ${shown(value)}${hintAt(value, names)}`);

export const list =
  <Value>(read: Read<Value>): Read<readonly Value[]> =>
  (value, field, fail) =>
    Array.isArray(value)
      ? value.map((one, at) => read(one, `${field}[${at}]`, fail))
      : fail(field, `must be a list, is ${shown(value)}`);

/** An object whose fields have any name. */
export const record =
  <Value>(read: Read<Value>): Read<Readonly<Record<string, Value>>> =>
  (value, field, fail) =>
    Object.fromEntries(
      Object.entries(plainObject(value, field, fail)).map(([name, one]) => [
        name,
        read(one, inside(field, name), fail),
      ]),
    );

/** An object with these fields, and perhaps these others. */
export const object =
  <
    Fields extends Readonly<Record<string, Read<unknown>>>,
    Others extends Readonly<Record<string, Read<unknown>>> = Readonly<Record<never, never>>,
  >(
    fields: Fields,
    others?: Others,
  ): Read<ValuesOf<Fields> & Partial<ValuesOf<Others>>> =>
  (value, field, fail) => {
    const written = plainObject(value, field, fail);
    const known = [...Object.keys(fields), ...Object.keys(others ?? {})];
    for (const name of Object.keys(written)) {
      if (!known.includes(name)) fail(inside(field, name.slice(0, 100)), `is not known${hintAt(name, known)}`);
    }
    const found: Record<string, unknown> = {};
    for (const [name, read] of Object.entries(fields)) found[name] = read(written[name], inside(field, name), fail);
    for (const [name, read] of Object.entries(others ?? {}))
      if (written[name] !== undefined) found[name] = read(written[name], inside(field, name), fail);
    return found as ValuesOf<Fields> & Partial<ValuesOf<Others>>;
  };

/** An object that says in one field which of several kinds it is; its other fields are those of the kind. */
export const kindOf =
  <Kinds extends Readonly<Record<string, Read<unknown>>>, Key extends string>(
    key: Key,
    kinds: Kinds,
  ): Read<
    { [Kind in keyof Kinds & string]: Readonly<Record<Key, Kind>> & ReturnType<Kinds[Kind]> }[keyof Kinds & string]
  > =>
  (value, field, fail) => {
    const { [key]: written, ...rest } = plainObject(value, field, fail);
    const kind = named(Object.keys(kinds))(written, inside(field, key), fail);
    return { [key]: kind, ...(kinds[kind]!(rest, field, fail) as object) } as never;
  };

export function plainObject(value: unknown, field: string, fail: Fail): Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return fail(field, `must be an object, is ${shown(value)}`);
  }
  return value as Readonly<Record<string, unknown>>;
}

function hintAt(written: unknown, names: readonly string[]): string {
  return typeof written === "string" ? didYouMean(written, names) : "";
}
