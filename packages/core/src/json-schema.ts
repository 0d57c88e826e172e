declare const described: unique symbol;
const definition: unique symbol = Symbol("definition");

/**
 * A JSON schema (draft 2020-12, as OpenAPI 3.1 has it) with the TypeScript type of the values that it describes, so that the shape of
 * an answer stands once: `type Answer = Described<typeof answer>`.
 */
export interface Schema<T> {
  readonly [keyword: string]: unknown;
  /** No value has it; it carries the type. */
  readonly [described]?: T;
  /** What a reference refers to. JSON does not show it. */
  readonly [definition]?: { readonly name: string; readonly schema: Schema<T> };
}

/** The type of the values that a schema describes. */
export type Described<S> = S extends Schema<infer T> ? T : never;

type Properties = Readonly<Record<string, Schema<unknown>>>;

/** An object with all these properties and no others. Another one may begin with them: `{ ...one.properties, more }`. */
export interface ObjectSchema<P> extends Schema<{ readonly [K in keyof P]: Described<P[K]> }> {
  readonly properties: P;
}

interface LooseObject<P, O> {
  readonly required: P;
  readonly optional: O;
  /** Whether it may have others too. */
  readonly isOpen?: boolean;
  readonly description?: string;
}

const of = (keywords: object, description: string | undefined): Schema<never> => ({
  ...keywords,
  ...(description !== undefined && { description }),
});

/** Builders of schemas. The last parameter is a sentence for people, unless the name tells enough. */
export const json = {
  /** The type parameter may name the strings that occur, where the schema leaves them open. */
  text: <T extends string = string>(description?: string): Schema<T> => of({ type: "string" }, description),
  dateTime: (): Schema<string> => ({ type: "string", format: "date-time" }),
  integer: (description?: string): Schema<number> => of({ type: "integer" }, description),
  number: (description?: string): Schema<number> => of({ type: "number" }, description),
  boolean: (description?: string): Schema<boolean> => of({ type: "boolean" }, description),
  constant: <const T extends string>(value: T): Schema<T> => ({ const: value }),
  oneOf: <const T extends string>(values: readonly T[], description?: string): Schema<T> =>
    of({ type: "string", enum: values }, description),
  list: <T>(items: Schema<T>, description?: string): Schema<readonly T[]> => of({ type: "array", items }, description),
  /** Any names, and values of one shape. */
  record: <T>(values: Schema<T>, description?: string): Schema<Readonly<Record<string, T>>> =>
    of({ type: "object", additionalProperties: values }, description),
  /** An object that is described elsewhere. */
  anyObject: (description?: string): Schema<object> => of({ type: "object" }, description),
  /** All these properties, and no others. */
  object: <P extends Properties>(properties: P, description?: string): ObjectSchema<P> =>
    of(
      { type: "object", properties, required: Object.keys(properties), additionalProperties: false },
      description,
    ) as unknown as ObjectSchema<P>,
  looseObject: <P extends Properties, O extends Properties>({
    required,
    optional,
    isOpen = false,
    description,
  }: LooseObject<P, O>): Schema<
    { readonly [K in keyof P]: Described<P[K]> } & { readonly [K in keyof O]?: Described<O[K]> | undefined }
  > => ({
    ...json.object({ ...required, ...optional }, description),
    required: Object.keys(required),
    additionalProperties: isOpen,
  }),
  nullable: <T>(schema: Schema<T>, description?: string): Schema<T | null> => {
    const { type } = schema;
    const isPlain = typeof type === "string" && !("enum" in schema) && !("properties" in schema);
    return of(isPlain ? { ...schema, type: [type, "null"] } : { anyOf: [schema, { type: "null" }] }, description);
  },
  either: <A, B>(one: Schema<A>, other: Schema<B>): Schema<A | B> => ({ oneOf: [one, other] }),
  /** Stands once in a document, under its name; where it is used stands a reference. */
  named: <T>(name: string, schema: Schema<T>): Schema<T> => ({
    $ref: `#/components/schemas/${name}`,
    [definition]: { name, schema },
  }),
} as const;

/**
 * All named schemas that a part of a document refers to, themselves or through each other, by name.
 *
 * @throws TypeError when two have the same name
 */
export function namedSchemas(part: object, found: Record<string, object> = {}): Readonly<Record<string, object>> {
  const named = (part as Schema<unknown>)[definition];
  if (named && found[named.name] !== named.schema) {
    if (found[named.name]) throw new TypeError(`two schemas are named ${named.name}`);
    found[named.name] = named.schema;
    namedSchemas(named.schema, found);
  }
  for (const each of Object.values(part)) if (typeof each === "object" && each !== null) namedSchemas(each, found);
  return found;
}
