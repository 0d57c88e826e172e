import { ByteReader, ByteWriter } from "@espalier/common";

const types = { part: 1, end: 2, credit: 3 } as const;

/**
 * `whole`: everything was sent. `none`: the other end has nothing of it. `busy`: too much is under way, come again.
 * `failed`: it could not go on.
 */
export type BulkOutcome = "whole" | "none" | "busy" | "failed";
const outcomes: readonly BulkOutcome[] = ["whole", "none", "busy", "failed"];

/** What travels on the channel `bulk`: answers to requests, in messages that may be cut into parts. */
export type BulkMessage =
  | {
      readonly kind: "part";
      readonly request: number;
      /** The message goes on in the next part of the same request. */
      readonly goesOn: boolean;
      readonly bytes: Uint8Array;
    }
  | { readonly kind: "end"; readonly request: number; readonly outcome: BulkOutcome }
  /** So many more bytes of parts may be sent. */
  | { readonly kind: "credit"; readonly bytes: number };

/** Every frame starts with its type; numbers are varints. */
export function encodeBulkMessage(message: BulkMessage): Uint8Array {
  const writer = new ByteWriter(message.kind === "part" ? message.bytes.length + 16 : 16);
  writer.u8(types[message.kind]);
  switch (message.kind) {
    case "part":
      writer.varint(message.request);
      writer.u8(message.goesOn ? 1 : 0);
      writer.raw(message.bytes);
      break;
    case "end":
      writer.varint(message.request);
      writer.u8(outcomes.indexOf(message.outcome));
      break;
    case "credit":
      writer.varint(message.bytes);
  }
  return writer.copy();
}

/** @throws RangeError for bytes that are no such frame */
export function decodeBulkMessage(frame: Uint8Array): BulkMessage {
  const reader = new ByteReader(frame);
  const message = readBody(reader, reader.u8());
  reader.end();
  return message;
}

function readBody(reader: ByteReader, type: number): BulkMessage {
  switch (type) {
    case types.part: {
      const request = reader.varint();
      const flags = reader.u8();
      if (flags > 1) throw new RangeError("unknown flags of a part");
      return { kind: "part", request, goesOn: flags === 1, bytes: reader.raw(reader.remaining) };
    }
    case types.end: {
      const request = reader.varint();
      const outcome = outcomes[reader.u8()];
      if (outcome === undefined) throw new RangeError("an unknown outcome");
      return { kind: "end", request, outcome };
    }
    case types.credit:
      return { kind: "credit", bytes: reader.varint() };
    default:
      throw new RangeError(`no bulk message has the type ${type}`);
  }
}
