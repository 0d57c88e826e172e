import { type Life, lifeId } from "../facts/life.ts";

/** Whether a life that somebody declared ended before the newest one that is known here began. */
export function isOlderLife(declared: Life, newest: Life): boolean {
  const declaredId = lifeId(declared);
  const newestId = lifeId(newest);
  if (declaredId === newestId || declared.predecessor === newestId) return false;
  if (newest.predecessor === declaredId) return true;
  if (declared.timestampUs !== newest.timestampUs) return declared.timestampUs < newest.timestampUs;
  if (declared.sequence !== newest.sequence) return declared.sequence < newest.sequence;
  return declared.checksum < newest.checksum;
}
