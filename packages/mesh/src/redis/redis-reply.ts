/** What Redis answers, with bulk strings as bytes. */
export type RedisReply = null | number | string | Buffer | readonly RedisReply[];

/** @returns undefined for anything but a text or bytes */
export function textOf(reply: RedisReply | undefined): string | undefined {
  if (typeof reply === "string") return reply;
  return Buffer.isBuffer(reply) ? reply.toString("utf8") : undefined;
}

/** @returns an empty list for anything else */
export function listOf(reply: RedisReply | undefined): readonly RedisReply[] {
  return Array.isArray(reply) ? reply : [];
}

/** The pairs of a hash, or of an entry of a stream. */
export function pairsOf(reply: RedisReply | undefined): (readonly [string, RedisReply])[] {
  const list = listOf(reply);
  const pairs: (readonly [string, RedisReply])[] = [];
  for (let at = 0; at + 1 < list.length; at += 2) pairs.push([textOf(list[at]) ?? "", list[at + 1]!]);
  return pairs;
}

/** Whether Redis refused a command because the key holds something of another type. */
export function isWrongType(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith("WRONGTYPE");
}
