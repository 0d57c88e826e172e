import { ByteReader, ByteWriter } from "@espalier/common";
import {
  type DutyDecision,
  isPlausibleTransfers,
  noTransfers,
  type RoleWork,
  type TransferSums,
} from "@espalier/disaggregation";

/** What a router tells the others of the roles of a model's engines. */
export interface RoleNote {
  readonly work: RoleWork;
  /** Undefined before the first one. */
  readonly decision: DutyDecision | undefined;
  /** Of KV blocks between engines. */
  readonly transfers: NotedTransfers;
}

export interface NotedTransfers {
  readonly sums: TransferSums;
  /** Since the latest of them. */
  readonly ageMs: number;
}

const version = 1;
/** More engines than that are taken for a mistake. */
const maxCount = 65_536;

/**
 * Layout: version, a byte; milliseconds of prefill and of decode, as doubles; one more than the number of engines that
 * compute prompts, or 0, as a varint; milliseconds since that was decided, as a varint. Of transfers, as doubles: how many,
 * tokens, milliseconds, squares of tokens, tokens by milliseconds; milliseconds since the latest, as a varint.
 */
export function writeRoleNote({ work, decision, transfers }: RoleNote): Uint8Array {
  const writer = new ByteWriter();
  writer.u8(version);
  writer.f64(work.prefillMs);
  writer.f64(work.decodeMs);
  writer.varint(decision ? decision.count + 1 : 0);
  writer.varint(Math.round(decision?.ageMs ?? 0));
  const { weight, tokens, ms, squareTokens, tokenMs } = transfers.sums;
  for (const sum of [weight, tokens, ms, squareTokens, tokenMs]) writer.f64(sum);
  writer.varint(Math.round(transfers.ageMs));
  return writer.copy();
}

/**
 * A note may end before the transfers. What follows them is left alone, so that a later version may add to a note.
 *
 * @returns undefined for a later version, and for what makes no sense
 */
export function readRoleNote(bytes: Uint8Array): RoleNote | undefined {
  try {
    const reader = new ByteReader(bytes);
    if (reader.u8() !== version) return undefined;
    const [prefillMs, decodeMs] = [reader.f64(), reader.f64()];
    const [next, ageMs] = [reader.varint(), reader.varint()];
    if (!isWork(prefillMs) || !isWork(decodeMs) || next > maxCount) return undefined;
    const transfers = reader.remaining > 0 ? readTransfers(reader) : nothingMoved;
    if (!isPlausibleTransfers(transfers.sums)) return undefined;
    return { work: { prefillMs, decodeMs }, decision: next > 1 ? { count: next - 1, ageMs } : undefined, transfers };
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

const nothingMoved: NotedTransfers = { sums: noTransfers, ageMs: 0 };

function readTransfers(reader: ByteReader): NotedTransfers {
  const [weight, tokens, ms, squareTokens] = [reader.f64(), reader.f64(), reader.f64(), reader.f64()];
  return { sums: { weight, tokens, ms, squareTokens, tokenMs: reader.f64() }, ageMs: reader.varint() };
}

const isWork = (ms: number): boolean => Number.isFinite(ms) && ms >= 0;
