import { ByteReader, ByteWriter, type Clock } from "@espalier/common";
import {
  addTransfers,
  balanceHalfLifeMs,
  createDecodePolicy,
  createRoleAssignment,
  createRoleBalance,
  createTransferCost,
  isPlausibleTransfers,
  noTransfers,
  type PrefillCountDecision,
  type RoleAssignment,
  type RoleBalance,
  type RoleWork,
  type TransferCost,
  type TransferSums,
} from "@espalier/disaggregation";
import type { Policy } from "@espalier/policies";
import type { Note, NoteChannel } from "@espalier/replication";

/** The roles of the engines of one model. */
export interface ModelRoles {
  /** Of the work that all routers have seen. */
  readonly balance: RoleBalance;
  readonly duties: RoleAssignment;
  /** Of handing a prompt's KV blocks over, by what all routers have seen. */
  readonly cost: TransferCost;
  /** Chooses who decodes, by that. */
  readonly decodePolicy: Policy;
  /** Tells other routers what this one has seen and decided; at most every two seconds, so it may be called often. */
  tell(): void;
}

export interface FleetRoles {
  /** @param model that engines serve; adapters of it have its roles */
  of(model: string): ModelRoles;
}

/** Models whose roles are followed; of further ones nothing is. */
export const maxRoleModels = 1_024;
/** Routers whose word on one model is kept; that of further ones is not. */
export const maxRoleRouters = 256;
const publishEveryMs = 2_000;
/** What a note is about: this, and the model's name. */
const keyPrefix = "roles/";
/** UTF-8 bytes of a model's name that others are told of. */
const maxModelBytes = 200;

interface Heard {
  readonly work: RoleWork;
  /** When it was so, on the monotonic clock. */
  readonly atMs: number;
  readonly transfers: TransferSums;
  /** When the latest of them was, on the monotonic clock. */
  readonly transferredMs: number;
}

/** A transfer so long ago counts half. */
const transferHalfLifeMs = 600_000;

const encoder = new TextEncoder();

/** @param notes where routers tell each other; undefined where they do not */
export function createFleetRoles(clock: Clock, notes: NoteChannel | undefined): FleetRoles {
  const models = new Map<string, OwnRoles>();
  const find = (model: string): OwnRoles => {
    let roles = models.get(model);
    if (!roles) {
      roles = new OwnRoles(clock, encoder.encode(model).length <= maxModelBytes ? notes : undefined, keyPrefix + model);
      if (models.size < maxRoleModels) models.set(model, roles);
    }
    return roles;
  };
  notes?.onNote((note) => {
    if (note.key.startsWith(keyPrefix)) find(note.key.slice(keyPrefix.length)).hear(note);
  });
  return { of: find };
}

class OwnRoles implements ModelRoles {
  readonly balance: RoleBalance;
  readonly duties: RoleAssignment;
  readonly cost: TransferCost;
  readonly decodePolicy: Policy;
  readonly #clock: Clock;
  readonly #notes: NoteChannel | undefined;
  readonly #key: string;
  readonly #heard = new Map<string, Heard>();
  #toldMs = Number.NEGATIVE_INFINITY;
  /** Of the transfers that were seen here, as of the latest that was. */
  #transfers = noTransfers;
  #transferredMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, notes: NoteChannel | undefined, key: string) {
    this.#clock = clock;
    this.#notes = notes;
    this.#key = key;
    this.balance = createRoleBalance({ clock, others: () => this.#others() });
    this.duties = createRoleAssignment(clock);
    this.cost = createTransferCost(undefined, () => this.#othersTransfers());
    this.decodePolicy = createDecodePolicy(this.cost);
  }

  hear({ origin, bytes, ageMs }: Note): void {
    const note = readRoleNote(bytes);
    if (!note || (this.#heard.size >= maxRoleRouters && !this.#heard.has(origin.router))) return;
    const atMs = this.#clock.nowMs() - ageMs;
    const { sums, ageMs: transferAgeMs } = note.transfers;
    this.#heard.set(origin.router, { work: note.work, atMs, transfers: sums, transferredMs: atMs - transferAgeMs });
    this.cost.told();
    if (note.decision) this.duties.count.adopt({ count: note.decision.count, ageMs: note.decision.ageMs + ageMs });
  }

  tell(): void {
    if (!this.#notes || this.#clock.nowMs() - this.#toldMs < publishEveryMs) return;
    this.#toldMs = this.#clock.nowMs();
    this.#notes.post(
      this.#key,
      writeRoleNote({
        work: this.balance.work(),
        decision: this.duties.count.decision(),
        transfers: this.#ownTransfers(),
      }),
    );
  }

  #ownTransfers(): NotedTransfers {
    const sums = this.cost.observed();
    const nowMs = this.#clock.nowMs();
    // Each transfer moves the sums.
    if (sums.tokenMs !== this.#transfers.tokenMs || sums.ms !== this.#transfers.ms) this.#transferredMs = nowMs;
    this.#transfers = sums;
    return { sums, ageMs: sums.weight > 0 ? nowMs - this.#transferredMs : 0 };
  }

  #othersTransfers(): TransferSums {
    const nowMs = this.#clock.nowMs();
    return addTransfers(
      [...this.#heard.values()].map(({ transfers, transferredMs }) => ({
        sums: transfers,
        share: 0.5 ** (Math.max(0, nowMs - transferredMs) / transferHalfLifeMs),
      })),
    );
  }

  #others(): RoleWork {
    let [prefillMs, decodeMs] = [0, 0];
    for (const { work, atMs } of this.#heard.values()) {
      const kept = 0.5 ** (Math.max(0, this.#clock.nowMs() - atMs) / balanceHalfLifeMs);
      prefillMs += kept * work.prefillMs;
      decodeMs += kept * work.decodeMs;
    }
    return { prefillMs, decodeMs };
  }
}

/** What a router tells the others of the roles of a model's engines. */
interface RoleNote {
  readonly work: RoleWork;
  /** Undefined before the first one. */
  readonly decision: PrefillCountDecision | undefined;
  /** Of KV blocks between engines. */
  readonly transfers: NotedTransfers;
}

interface NotedTransfers {
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
