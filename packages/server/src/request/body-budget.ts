import { EspalierError } from "@espalier/core";
import type { FastifyRequest } from "fastify";
import type { RouterContext } from "../router-context.ts";
import type { ClientRequest } from "./planned-request.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** Bytes reserved for its body in the body memory budget; negative once its answer has begun or ended. */
    reservedBytes: number;
  }
}

type ReservingRequest = Pick<ClientRequest, "body" | "reservedBytes">;
type BodyBudget = Pick<RouterContext, "inFlight" | "live">;

/**
 * Reserves the declared length of a body before any of it is read. The reservation lasts until the answer begins: until
 * then the body may be resent. The caller releases it when the answer has closed.
 *
 * @throws EspalierError `overloaded` when it exceeds the budget
 */
export function reserveDeclared(budget: BodyBudget, request: FastifyRequest): void {
  const { headers } = request.raw;
  const declared = Number(headers["content-length"] ?? 0);
  if (declared === 0 && headers["transfer-encoding"] === undefined) return;
  // A body that is too long gets its own error later.
  if (declared > budget.live.current.limits.maxBodyBytes) return;
  if (!fits(budget, 0, declared)) throw budgetExceeded();
  const { inFlight } = budget;
  inFlight.bodyBytes += declared;
  request.reservedBytes = declared;
}

/** Releases a body and its reservation. It is not resent once the answer has begun. */
export function releaseBody({ inFlight }: Pick<BodyBudget, "inFlight">, request: ReservingRequest): void {
  request.body = undefined;
  if (request.reservedBytes > 0) inFlight.bodyBytes -= request.reservedBytes;
  request.reservedBytes = -1;
}

/** Keeps of a reservation what a body that is sent while it arrives needs. */
export function shrinkReservation({ inFlight }: BodyBudget, request: ReservingRequest, bytes: number): void {
  const excess = request.reservedBytes - bytes;
  if (excess <= 0) return;
  inFlight.bodyBytes -= excess;
  request.reservedBytes = bytes;
}

/**
 * @returns a function that reserves each piece of a body of undeclared length, and returns an error beyond the budget
 */
export function reservePieces(
  budget: BodyBudget,
  request: FastifyRequest,
): ((bytes: number) => EspalierError | undefined) | undefined {
  if (request.raw.headers["content-length"] !== undefined) return undefined;
  return (bytes) => reservePiece(budget, request, bytes);
}

/** Reserves one more piece of a body. @returns an error beyond the budget */
export function reservePiece(budget: BodyBudget, request: ReservingRequest, bytes: number): EspalierError | undefined {
  if (request.reservedBytes < 0) return undefined;
  if (!fits(budget, request.reservedBytes, bytes)) return budgetExceeded();
  budget.inFlight.bodyBytes += bytes;
  request.reservedBytes += bytes;
  return undefined;
}

/**
 * A single body always fits, so that no body is refused forever.
 *
 * @param reserved bytes of it that are reserved already
 */
function fits({ inFlight, live }: BodyBudget, reserved: number, bytes: number): boolean {
  return inFlight.bodyBytes === reserved || inFlight.bodyBytes + bytes <= live.current.limits.maxBodyBytesInFlight;
}

const budgetExceeded = (): EspalierError =>
  new EspalierError("overloaded", "The bodies of the requests in flight are at their memory limit.");
