import { closed, nullable, type TSchema, Type } from "@espalier/core/schema";

const errorBody = closed(
  {
    error: closed({
      message: Type.String(),
      type: Type.String(),
      param: nullable(Type.String()),
      code: Type.String({ description: "Stable error code (docs/ERRORS.md)." }),
    }),
  },
  { title: "Error" },
);

/** An answer in a route's schema, whose place there is its status. */
export const answer = (description: string, schema: TSchema, type = "application/json") => ({
  ...{ description, content: { [type]: { schema } } },
});
export const described = (schema: TSchema) => answer("Success.", schema);
export const error = (description: string) => answer(description, errorBody);
/** An answer without a body. */
export const bare = (description: string) => ({ description, type: "null" });
