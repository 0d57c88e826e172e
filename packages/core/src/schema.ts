import { type Static, type TProperties, type TSchema, type TSchemaOptions, Type } from "typebox";

export { type TSchema, type TSchemaOptions, Type };

/** The type of the values that a schema describes, for whoever makes or reads them: `type Answer = Described<typeof answer>`. */
export type Described<S extends TSchema> = Unchanging<Static<S>>;

type Unchanging<T> = T extends string | number | boolean | null
  ? T
  : T extends readonly (infer Item)[]
    ? readonly Unchanging<Item>[]
    : // What may be absent may be undefined, too: JSON shows neither.
      { readonly [Key in keyof T]: Unchanging<T[Key]> | (object extends Pick<T, Key> ? undefined : never) };

/** An object with these properties and no others. Another one may begin with them: `{ ...one.properties, more }`. */
export const closed = <P extends TProperties>(properties: P, options: TSchemaOptions = {}) =>
  Type.Object(properties, { ...options, additionalProperties: false });

export const nullable = <S extends TSchema>(schema: S, options: TSchemaOptions = {}) =>
  Type.Union([schema, Type.Null()], options);

/** Any names, and values of one shape. Generators of clients know `additionalProperties`, and not the patterns of `Type.Record`. */
export const record = <S extends TSchema>(values: S, options: TSchemaOptions = {}) =>
  Type.Unsafe<Record<string, Static<S>>>({ type: "object", additionalProperties: values, ...options });
