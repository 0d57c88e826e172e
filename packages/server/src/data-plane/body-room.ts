import type { ServerResponse } from "node:http";
import { EspalierError } from "@espalier/common";
import type { FastifyRequest } from "fastify";
import type { RouterContext } from "./router-context.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** Bytes that count for it among the bodies in flight; negative once its answer has begun or ended. */
    heldBytes: number;
  }
}

type Room = Pick<RouterContext, "inFlight" | "live">;

/**
 * Counts what a body declares before any of it is read, until the answer has begun: it may be sent again until then.
 *
 * @throws EspalierError `overloaded` where there is no room for it
 */
export function holdDeclared(room: Room, request: FastifyRequest, response: ServerResponse): void {
  const { headers } = request.raw;
  const declared = Number(headers["content-length"] ?? 0);
  if (declared === 0 && headers["transfer-encoding"] === undefined) return;
  // One that is too long is refused for that later on, whatever else there is.
  if (declared > room.live.current.limits.maxBodyBytes) return;
  if (!hasRoom(room, 0, declared)) throw noRoom();
  const { inFlight } = room;
  inFlight.bodyBytes += declared;
  request.heldBytes = declared;
  response.once("close", () => letGoOfBody(room, request));
}

/** Gives back what a body counts for, and the body itself; once the answer has begun it is not sent again. */
export function letGoOfBody({ inFlight }: Pick<Room, "inFlight">, request: FastifyRequest): void {
  request.body = undefined;
  if (request.heldBytes > 0) inFlight.bodyBytes -= request.heldBytes;
  request.heldBytes = -1;
}

/** @returns counts a piece of a body that declares no length, and says what is wrong when there is no room for it */
export function holdPieces(
  room: Room,
  request: FastifyRequest,
): ((bytes: number) => EspalierError | undefined) | undefined {
  if (request.raw.headers["content-length"] !== undefined) return undefined;
  return (bytes) => {
    if (request.heldBytes < 0) return undefined;
    if (!hasRoom(room, request.heldBytes, bytes)) return noRoom();
    room.inFlight.bodyBytes += bytes;
    request.heldBytes += bytes;
    return undefined;
  };
}

/**
 * A body that is alone always has room, so that none is refused for good.
 *
 * @param held bytes of it that count already
 */
function hasRoom({ inFlight, live }: Room, held: number, bytes: number): boolean {
  return inFlight.bodyBytes === held || inFlight.bodyBytes + bytes <= live.settings.maxBodyBytesInFlight;
}

const noRoom = (): EspalierError =>
  new EspalierError("overloaded", "The bodies of the requests in flight are as large as they may be together.");
