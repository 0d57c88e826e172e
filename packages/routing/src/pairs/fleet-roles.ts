import { added, amount, type Clock, readOrUndefined, scaledVarint, struct, varint, versioned } from "@espalier/core";
import type { Policy } from "@espalier/policies";
import type { Note, NoteChannel } from "@espalier/shared-tree";
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
  prefillCountHoldMs,
  type RoleAssignment,
  type RoleBalance,
  type RoleWork,
  type TransferCost,
  type TransferSums,
} from "../disaggregation/index.ts";

/** The roles of the engines of one model. */
export interface ModelRoles {
  /** Balance of the work that all routers have seen. */
  readonly balance: RoleBalance;
  readonly assignment: RoleAssignment;
  /** Cost of transferring a prompt's KV blocks, learned by all routers. */
  readonly cost: TransferCost;
  /** The policy for decode engines, using that cost. */
  readonly decodePolicy: Policy;
  /** Whether any router has split a request in the time that an assignment is held. */
  readonly isPairing: boolean;
  /** This router splits a request. */
  paired(): void;
  /** Publishes what this router has seen and decided, at most every two seconds, so it may be called often. */
  tell(): void;
}

export interface FleetRoles {
  /** @param model model of the engines; its adapters share its roles */
  of(model: string): ModelRoles;
}

/** Bound of models whose roles are tracked. */
export const maxRoleModels = 1_024;
/** Bound of routers whose notes on one model are kept. */
export const maxRoleRouters = 256;
const publishEveryMs = 2_000;
/** Key of a note: this prefix and the model's name. */
const keyPrefix = "roles/";
/** Longest model name in UTF-8 bytes that is published. */
const maxModelBytes = 200;

interface Heard {
  readonly work: RoleWork;
  /** Time of the observation, on the monotonic clock. */
  readonly atMs: number;
  readonly transfers: TransferSums;
  /** Time of the latest transfer, on the monotonic clock. */
  readonly transferredMs: number;
}

/** Half-life of transfers. */
const transferHalfLifeMs = 600_000;

const encoder = new TextEncoder();

/** @param notes channel between routers; undefined if there is none */
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
  readonly assignment: RoleAssignment;
  readonly cost: TransferCost;
  readonly decodePolicy: Policy;
  readonly #clock: Clock;
  readonly #notes: NoteChannel | undefined;
  readonly #key: string;
  readonly #heard = new Map<string, Heard>();
  #publishedMs = Number.NEGATIVE_INFINITY;
  /** Transfers seen here, as of the latest one. */
  #transfers = noTransfers;
  #transferredMs = Number.NEGATIVE_INFINITY;
  #pairedMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, notes: NoteChannel | undefined, key: string) {
    this.#clock = clock;
    this.#notes = notes;
    this.#key = key;
    this.balance = createRoleBalance({ clock, others: () => this.#others() });
    this.assignment = createRoleAssignment(clock);
    this.cost = createTransferCost(undefined, () => this.#othersTransfers());
    this.decodePolicy = createDecodePolicy(this.cost);
  }

  hear({ origin, bytes, ageMs }: Note): void {
    const note = readRoleNote(bytes);
    if (!note || (this.#heard.size >= maxRoleRouters && !this.#heard.has(origin.router))) return;
    const atMs = this.#clock.nowMs() - ageMs;
    const { sums, ageMs: transferAgeMs } = note.transfers;
    this.#heard.set(origin.router, { work: note.work, atMs, transfers: sums, transferredMs: atMs - transferAgeMs });
    this.cost.refit();
    if (note.decision) this.assignment.count.adopt({ count: note.decision.count, ageMs: note.decision.ageMs + ageMs });
  }

  get isPairing(): boolean {
    const sinceMs = this.#clock.nowMs() - prefillCountHoldMs;
    if (this.#pairedMs > sinceMs) return true;
    for (const { transfers, transferredMs } of this.#heard.values()) {
      if (transfers.weight > 0 && transferredMs > sinceMs) return true;
    }
    return false;
  }

  paired(): void {
    this.#pairedMs = this.#clock.nowMs();
  }

  tell(): void {
    if (!this.#notes || this.#clock.nowMs() - this.#publishedMs < publishEveryMs) return;
    this.#publishedMs = this.#clock.nowMs();
    this.#notes.post(
      this.#key,
      writeRoleNote({
        work: this.balance.work(),
        decision: this.assignment.count.decision(),
        transfers: this.#ownTransfers(),
      }),
    );
  }

  #ownTransfers(): NotedTransfers {
    const sums = this.cost.observed();
    const nowMs = this.#clock.nowMs();
    // Each transfer changes the sums.
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

/** What a router publishes about the roles of a model's engines. */
interface RoleNote {
  readonly work: RoleWork;
  /** Undefined before the first decision. */
  readonly decision: PrefillCountDecision | undefined;
  /** Transfers of KV blocks between engines. */
  readonly transfers: NotedTransfers;
}

interface NotedTransfers {
  readonly sums: TransferSums;
  /** Time since the latest transfer. */
  readonly ageMs: number;
}

/** More engines than this are taken for an error. */
const maxCount = 65_536;
const sum = amount();

const roleNote = versioned(
  1,
  struct({
    prefillMs: sum,
    decodeMs: sum,
    /** Prefill engines plus 1; 0 for no decision. */
    next: varint(maxCount),
    decidedMs: scaledVarint(1),
    transfers: added(
      struct({
        sums: struct({ weight: sum, tokens: sum, ms: sum, squareTokens: sum, tokenMs: sum }),
        ageMs: scaledVarint(1),
      }),
    ),
  }),
);

export const roleNoteLayout = roleNote.layout;

export function writeRoleNote({ work, decision, transfers }: RoleNote): Uint8Array {
  return roleNote.encode({
    ...work,
    next: decision ? decision.count + 1 : 0,
    decidedMs: decision?.ageMs ?? 0,
    transfers,
  });
}

/** @returns undefined for a later version, and for impossible values */
export function readRoleNote(bytes: Uint8Array): RoleNote | undefined {
  const note = readOrUndefined(() => roleNote.decode(bytes));
  if (!note) return undefined;
  const { prefillMs, decodeMs, next, decidedMs, transfers = nothingMoved } = note;
  if (!isPlausibleTransfers(transfers.sums)) return undefined;
  const decision = next > 1 ? { count: next - 1, ageMs: decidedMs } : undefined;
  return { work: { prefillMs, decodeMs }, decision, transfers };
}

const nothingMoved: NotedTransfers = { sums: noTransfers, ageMs: 0 };
