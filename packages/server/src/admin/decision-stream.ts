import type { ServerResponse } from "node:http";
import { EspalierError, type Scheduler } from "@espalier/core";
import type { FastifyInstance } from "fastify";
import { type DecisionBatch, type DecisionFeed, decisionBatch } from "../decisions/decision-feed.ts";
import { answer, error } from "../lifecycle/answer-schemas.ts";
import { getStream } from "./get-stream.ts";

/** Interval of keep-alive comments, by which readers tell a dead router from a quiet one. */
const keepAliveMs = 2_000;
/** Most bytes buffered for one reader; beyond it, batches are skipped and counted. */
const maxWaitingBytes = 262_144;

/** `GET /admin/decisions`: streams new decisions as server-sent events. */
export function registerDecisions(app: FastifyInstance, feed: DecisionFeed, scheduler: Scheduler): void {
  const head = { "content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no" };
  const schema = {
    operationId: "decisions",
    summary: "Live routing decisions: server-sent events named `decisions`, each with a `DecisionBatch`.",
    tags: ["dashboard"],
    response: {
      200: answer("Endless stream, with a comment every two seconds.", decisionBatch, "text/event-stream"),
      503: error("Too many readers."),
    },
  };
  getStream(app, "/admin/decisions", schema, head, (_, raw) => {
    const reader = createReader(raw);
    const cancelWatch = feed.watch(reader.tell);
    if (!cancelWatch) throw new EspalierError("overloaded");
    const cancelSigns = scheduler.every(keepAliveMs, reader.sign);
    raw.once("close", () => {
      cancelWatch();
      cancelSigns();
    });
    return () => reader.begin();
  });
}

/** Writes to one reader, which may be slow. Batches that arrive before `begin` are buffered. */
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
    const sent: DecisionBatch = { ...batch, skipped: batch.skipped + skipped };
    skipped = 0;
    response.write(`event: decisions\ndata: ${JSON.stringify(sent)}\n\n`);
  };
  return {
    tell,
    sign(): void {
      if (!response.destroyed && response.writableLength <= maxWaitingBytes) response.write(": here\n\n");
    },
    begin(): void {
      hasBegun = true;
      tell(first ?? { decisions: [], ends: [], skipped: 0 });
    },
  };
}
