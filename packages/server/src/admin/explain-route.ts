import type { FastifyInstance, FastifyRequest } from "fastify";

/** Says what would be done with a request; `endpoint` is its endpoint's id or path, where the caller names one. */
export type Explain = (request: FastifyRequest, endpoint: string | undefined) => Promise<unknown>;

/**
 * `POST /admin/explain`: a client's request, headers and body, put to the admin listener.
 *
 * @param maxBodyBytes as clients may send
 */
export function registerExplain(app: FastifyInstance, explain: Explain, maxBodyBytes: number): void {
  app.register(async (asked) => {
    // The body is read as the data plane reads it: whole, and parsed by its own rules.
    asked.removeAllContentTypeParsers();
    asked.addContentTypeParser("*", { parseAs: "buffer", bodyLimit: maxBodyBytes }, (_, body, done) =>
      done(null, body),
    );
    asked.post<{ Querystring: { endpoint?: string } }>("/admin/explain", { bodyLimit: maxBodyBytes }, (request) =>
      explain(request, request.query.endpoint),
    );
  });
}
