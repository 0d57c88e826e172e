import { type JsonBody, scanBody } from "@espalier/core";

/** A request's body with these fields. */
export function bodyOf(fields: object): JsonBody {
  const body = scanBody(Buffer.from(JSON.stringify(fields)), 64);
  if (typeof body === "string") throw new Error(`the body is ${body}`);
  return body;
}
