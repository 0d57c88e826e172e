/** A body in one piece, as undici takes it; null when there is none. */
export function joinBody(body: readonly Buffer[]): Buffer | null {
  if (body.length <= 1) return body[0] ?? null;
  return Buffer.concat(body);
}
