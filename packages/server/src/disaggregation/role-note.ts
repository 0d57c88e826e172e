import { ByteReader, ByteWriter } from "@espalier/common";
import type { DutyDecision, RoleWork } from "@espalier/disaggregation";

/** What a router tells the others of the roles of a model's engines. */
export interface RoleNote {
  readonly work: RoleWork;
  /** Undefined before the first one. */
  readonly decision: DutyDecision | undefined;
}

const version = 1;
/** More engines than that are taken for a mistake. */
const maxCount = 65_536;

/**
 * Layout: version, a byte; milliseconds of prefill and of decode, as doubles; one more than the number of engines that
 * compute prompts, or 0, as a varint; milliseconds since that was decided, as a varint.
 */
export function writeRoleNote({ work, decision }: RoleNote): Uint8Array {
  const writer = new ByteWriter();
  writer.u8(version);
  writer.f64(work.prefillMs);
  writer.f64(work.decodeMs);
  writer.varint(decision ? decision.count + 1 : 0);
  writer.varint(Math.round(decision?.ageMs ?? 0));
  return writer.copy();
}

/** @returns undefined for a later version, and for what makes no sense */
export function readRoleNote(bytes: Uint8Array): RoleNote | undefined {
  try {
    const reader = new ByteReader(bytes);
    if (reader.u8() !== version) return undefined;
    const [prefillMs, decodeMs] = [reader.f64(), reader.f64()];
    const [next, ageMs] = [reader.varint(), reader.varint()];
    if (!isWork(prefillMs) || !isWork(decodeMs) || next > maxCount) return undefined;
    return { work: { prefillMs, decodeMs }, decision: next > 1 ? { count: next - 1, ageMs } : undefined };
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

const isWork = (ms: number): boolean => Number.isFinite(ms) && ms >= 0;
