import type { ServerResponse } from "node:http";
import { EspalierError, type Scheduler } from "@espalier/common";
import type { FastifyInstance } from "fastify";
import type { DecisionBatch, DecisionFeed } from "./decision-feed.ts";

/** Who reads is told that often that the router is there, so that silence can be told from quiet. */
const signOfLifeMs = 2_000;
/** Bytes that wait for a reader; with more, batches are skipped and counted. */
const maxWaitingBytes = 262_144;

/** `GET /admin/decisions`: what is decided from now on, as server-sent events. */
export function registerDecisions(app: FastifyInstance, feed: DecisionFeed, scheduler: Scheduler): void {
  app.get("/admin/decisions", (_, reply) => {
    const reader = createReader(reply.raw);
    const cancelWatch = feed.watch(reader.tell);
    if (!cancelWatch) throw new EspalierError("overloaded");
    const cancelSigns = scheduler.every(signOfLifeMs, reader.sign);
    reply.raw.once("close", () => {
      cancelWatch();
      cancelSigns();
    });
    reply.hijack();
    reply.raw.writeHead(200, {
      ...(reply.getHeaders() as Record<string, string>),
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-store",
      "x-accel-buffering": "no",
    });
    reader.begin();
  });
}

/** Writes to one reader, who may be slow. What is told before `begin` waits for it. */
function createReader(response: ServerResponse) {
  let first: DecisionBatch | undefined;
  let skipped = 0;
  let hasBegun = false;
  const tell = (batch: DecisionBatch): void => {
    if (!hasBegun) {
      first = batch;
      return;
    }
    if (response.destroyed) return;
    if (response.writableLength > maxWaitingBytes) {
      skipped += batch.decisions.length + batch.skipped;
      return;
    }
    const told: DecisionBatch = { decisions: batch.decisions, skipped: batch.skipped + skipped };
    skipped = 0;
    response.write(`event: decisions\ndata: ${JSON.stringify(told)}\n\n`);
  };
  return {
    tell,
    sign(): void {
      if (!response.destroyed && response.writableLength <= maxWaitingBytes) response.write(": here\n\n");
    },
    begin(): void {
      hasBegun = true;
      tell(first ?? { decisions: [], skipped: 0 });
    },
  };
}
