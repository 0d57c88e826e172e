import { EspalierError } from "@espalier/common";
import type { FastifyInstance, FastifyReply } from "fastify";
import { contentPolicy } from "./content-policy.ts";

/** A file of the dashboard's page. */
export interface PageFile {
  /** Below `/dashboard/`; `index.html` is the page itself. */
  readonly name: string;
  readonly contentType: string;
  readonly text: string;
}

/** In the page, where the origins go that it may talk to. */
const originsPlace = 'data-origins=""';

const commonHeaders = {
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-resource-policy": "same-origin",
  "cross-origin-opener-policy": "same-origin",
} as const;

/**
 * `/dashboard/`, and `/` for browsers. The files hold nothing that is worth a key: what the page shows it asks for, with
 * the key that people give it.
 *
 * @param origins of the other routers, asked for each time the page is loaded
 */
export function registerPage(app: FastifyInstance, files: readonly PageFile[], origins: () => readonly string[]): void {
  const byName = new Map(files.map((file) => [file.name, file]));
  const send = (reply: FastifyReply, file: PageFile, text: string): FastifyReply =>
    reply
      .headers({ ...commonHeaders, "cache-control": "no-cache" })
      .type(file.contentType)
      .send(text);
  const sendIndex = (reply: FastifyReply): FastifyReply => {
    const index = byName.get("index.html");
    if (!index) throw new EspalierError("path_not_found");
    const allowed = origins();
    reply.header("content-security-policy", contentPolicy(allowed));
    return send(reply, index, index.text.replace(originsPlace, `data-origins="${allowed.join(" ")}"`));
  };
  app.get("/", (request, reply) => {
    if (!request.headers.accept?.includes("text/html")) throw new EspalierError("path_not_found");
    return reply.redirect("/dashboard/");
  });
  app.get("/dashboard", (_, reply) => reply.redirect("/dashboard/"));
  app.get("/dashboard/", (_, reply) => sendIndex(reply));
  app.get<{ Params: { name: string } }>("/dashboard/:name", ({ params }, reply) => {
    if (params.name === "index.html") return sendIndex(reply);
    const file = byName.get(params.name);
    if (!file) throw new EspalierError("path_not_found");
    return send(reply, file, file.text);
  });
}
