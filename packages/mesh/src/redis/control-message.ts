import { asRouterId } from "@espalier/common";
import type { FoldStatement, Origin } from "@espalier/replication";

/** What routers tell each other through Redis and need not be kept. */
export type ControlMessage = { readonly from: Origin } & (
  | { readonly kind: "hello" | "goodbye" | "streams" }
  /** The stream of this origin has a hole that its blob does not fill. */
  | { readonly kind: "republish"; readonly origin: Origin }
  | {
      readonly kind: "snapshot";
      readonly id: string;
      readonly targets: readonly string[] | null;
      readonly holder: Origin | null;
    }
  | { readonly kind: "statements"; readonly statements: readonly FoldStatement[] }
);

const controlVersion = 1;
const maxIdLength = 512;
const maxListLength = 65_536;

export function encodeControlMessage(message: ControlMessage): string {
  return JSON.stringify({ version: controlVersion, ...message });
}

/** @throws RangeError for bytes that are no message of this version */
export function decodeControlMessage(bytes: Uint8Array, maxBytes: number): ControlMessage {
  if (bytes.length > maxBytes) throw new RangeError(`${bytes.length} bytes where ${maxBytes} are the most`);
  const message = parse(bytes);
  if (message.version !== controlVersion) throw new RangeError("a message of another version");
  const from = originOf(message.from);
  switch (message.kind) {
    case "hello":
    case "goodbye":
    case "streams":
      return { kind: message.kind, from };
    case "republish":
      return { kind: "republish", from, origin: originOf(message.origin) };
    case "snapshot":
      return {
        kind: "snapshot",
        from,
        id: textOf(message.id),
        targets: message.targets === null ? null : listOf(message.targets).map(textOf),
        holder: message.holder === null ? null : originOf(message.holder),
      };
    case "statements":
      return { kind: "statements", from, statements: listOf(message.statements).map(statementOf) };
    default:
      throw new RangeError("a message of an unknown kind");
  }
}

function parse(bytes: Uint8Array): Readonly<Record<string, unknown>> {
  try {
    return recordOf(JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8")));
  } catch (cause) {
    throw new RangeError("a message is no JSON object", { cause });
  }
}

function statementOf(value: unknown): FoldStatement {
  const { target, life, sequence, isComplete, blocks, digest } = recordOf(value);
  const words = listOf(digest);
  if (typeof isComplete !== "boolean" || words.length !== 2) throw new RangeError("a statement is malformed");
  return {
    target: textOf(target),
    life: textOf(life),
    sequence: integerOf(sequence),
    isComplete,
    blocks: integerOf(blocks),
    digest: [integerOf(words[0]), integerOf(words[1])],
  };
}

function originOf(value: unknown): Origin {
  const { router, epoch } = recordOf(value);
  const count = integerOf(epoch);
  if (count < 0) throw new RangeError("an epoch is negative");
  return { router: asRouterId(textOf(router)), epoch: count };
}

function recordOf(value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new RangeError("no object");
  return value as Readonly<Record<string, unknown>>;
}

function listOf(value: unknown): readonly unknown[] {
  if (!Array.isArray(value) || value.length > maxListLength) throw new RangeError("no list");
  return value;
}

function textOf(value: unknown): string {
  if (typeof value !== "string" || value === "" || value.length > maxIdLength) throw new RangeError("no text");
  return value;
}

function integerOf(value: unknown): number {
  if (!Number.isSafeInteger(value)) throw new RangeError("no whole number");
  return value as number;
}
