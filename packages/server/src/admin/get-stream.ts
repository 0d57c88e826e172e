import type { OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { FastifyInstance, FastifyRequest, FastifySchema } from "fastify";

/**
 * Prepares a stream before its head is sent, and throws what refuses it.
 *
 * @returns what writes the beginning of the body
 */
type Open = (request: FastifyRequest, response: ServerResponse) => () => void;

/**
 * Serves a GET whose answer does not end by itself. HEAD gets the head alone: Node drops what is written to its answer, which would
 * never end.
 */
export function getStream(
  app: FastifyInstance,
  path: string,
  schema: FastifySchema,
  head: Readonly<Record<string, string>>,
  open: Open,
): void {
  app.get(path, { schema, exposeHeadRoute: false }, (request, reply) => {
    const begin = open(request, reply.raw);
    reply.hijack();
    reply.raw.writeHead(200, { ...(reply.getHeaders() as OutgoingHttpHeaders), ...head, "cache-control": "no-store" });
    begin();
  });
  app.head(path, { schema: { hide: true } }, (_, reply) =>
    reply.headers({ ...head, "cache-control": "no-store" }).send(),
  );
}
