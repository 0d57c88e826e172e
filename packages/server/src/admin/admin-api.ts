import { isDeepStrictEqual } from "node:util";
import swagger from "@fastify/swagger";
import type { FastifyInstance } from "fastify";
import { error } from "../lifecycle/answer-schemas.ts";

const description =
  "API of a router's admin listener. HEAD is supported wherever GET is. With `admin.key`, every path requires the key, except probes and dashboard files; without it, the Host header must name a loopback address. Requests from pages of other sites are rejected with 403. Errors have OpenAI's shape.";

/** Not a route of the application, but of the server's upgrades. */
const documents = {
  operationId: "documents",
  summary:
    "Read-only y-websocket stream of a shared document (docs/PROTOCOL.md). Websocket only; `?key=` may carry the key.",
  tags: ["dashboard"],
  parameters: [
    {
      ...{ name: "document", in: "path" as const, required: true },
      ...{ description: "Name of the document, possibly with slashes.", schema: { type: "string" as const } },
    },
    {
      ...{ name: "key", in: "query" as const },
      ...{ description: "Admin key, for browsers.", schema: { type: "string" as const } },
    },
  ],
  responses: {
    101: { description: "Websocket open." },
    401: error("Missing or invalid admin key."),
    404: { description: "Document not found." },
  },
};

/**
 * Describes the routes that are registered after it (OpenAPI 3.1), by the schemas that stand beside what makes their answers.
 * Schemas describe and do nothing else: handlers judge requests by the error catalogue, and answers are plain JSON.
 */
export function describeRoutes(app: FastifyInstance): void {
  app.setValidatorCompiler(() => () => true);
  app.setSerializerCompiler(() => (data) => JSON.stringify(data));
  app.register(swagger, {
    convertConstToEnum: false,
    openapi: {
      openapi: "3.1.0",
      info: {
        title: "Espalier admin API",
        version: "0.1.0",
        license: { name: "Apache-2.0", identifier: "Apache-2.0" },
        description,
      },
      servers: [{ url: "http://127.0.0.1:9090" }],
      security: [{}, { adminKey: [] }],
      tags: ["probes", "metrics", "router", "engines", "dashboard"].map((name) => ({ name })),
      paths: { "/yjs/{document}": { get: documents } },
      components: { securitySchemes: { adminKey: { type: "http", scheme: "bearer" } } },
    },
  });
}

/** The description of an application's routes. Call it when the application is ready. */
export function descriptionOf(app: FastifyInstance): Readonly<Record<string, unknown>> {
  const { paths, components, ...rest } = app.swagger() as { readonly paths: object; readonly components: object };
  const schemas: Record<string, unknown> = {};
  return { ...rest, paths: withReferences(paths, schemas), components: { ...components, schemas } };
}

/** Answers that any route behind the key may give. */
export function describeGuard(app: FastifyInstance): void {
  app.addHook("onRoute", ({ schema }) => {
    if (schema) schema.response = { ...(schema.response as object), 401: error("Missing or invalid admin key.") };
  });
}

/**
 * Puts schemas that have a title among those of the document, once, and references in their places.
 *
 * @throws TypeError when two different ones have the same title
 */
function withReferences(part: unknown, schemas: Record<string, unknown>): unknown {
  if (typeof part !== "object" || part === null) return part;
  if (Array.isArray(part)) return part.map((item) => withReferences(item, schemas));
  const { title } = part as { readonly title?: unknown };
  const rest = Object.entries(part).filter(([key]) => typeof title !== "string" || key !== "title");
  const written = Object.fromEntries(rest.map(([key, value]) => [key, withReferences(value, schemas)]));
  if (typeof title !== "string") return written;
  if (!isDeepStrictEqual(schemas[title] ?? written, written)) throw new TypeError(`two schemas are named ${title}`);
  schemas[title] = written;
  return { $ref: `#/components/schemas/${title}` };
}
