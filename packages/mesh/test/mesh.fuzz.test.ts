import { asRouterId, EspalierError } from "@espalier/core";
import { type FuzzTarget, fuzzInFile, seedsInHex } from "@espalier/testing";
import { expect, test } from "vitest";
import { type BulkMessage, decodeBulkMessage, encodeBulkMessage } from "../src/exchange/bulk-transfer.ts";
import {
  type DocumentMessage,
  decodeDocumentMessage,
  documentPiece,
  encodeDocumentMessage,
} from "../src/exchange/document-frames.ts";
import { decodeMembership, encodeMembership, frameBounds } from "../src/membership/membership-frames.ts";
import { decodeStoredPiece, encodeStoredPiece } from "../src/redis/journal-store.ts";
import { decodeRedisMessage, encodeRedisMessage, type RedisMessage } from "../src/redis/redis-transport.ts";
import {
  channelOf,
  decodeCredit,
  decodeGoodbye,
  decodeHello,
  decodeReject,
  decodeVersions,
  encodeCredit,
  encodeData,
  encodeGoodbye,
  encodeHello,
  encodeProof,
  encodeReject,
  maxNameBytes,
  provedSecret,
} from "../src/wire/link-frames.ts";
import { readClientMessage, readDocumentRequest } from "../src/y-websocket/y-websocket-endpoint.ts";

const origin = { router: asRouterId("r\u00e4uter-1"), epoch: 1_700_000_000_000 };
const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);
const textOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString("utf8");
const isInvalidFrame = (thrown: unknown): boolean =>
  thrown instanceof EspalierError && thrown.code === "mesh_frame_invalid";
const maxRedisBytes = 256 * 1_024;

const hello = encodeHello({
  ...{ versions: { min: 1, max: 3 }, nonce: new Uint8Array(32).fill(5), cluster: "default", blockSizeTokens: 16 },
  ...{ seedDigest: new Uint8Array(32).fill(9), origin, address: "ws://10.0.0.1:7946", capabilities: ["a", "relay"] },
});
const transcript = { dialerHello: hello, acceptorHello: hello, version: 1 };
const statement = {
  target: "e#0",
  epoch: "0.-1.ff",
  sequence: 7,
  isComplete: false,
  blocks: 3,
  digest: [1, 5] as const,
};
const documentMessages: DocumentMessage[] = [
  { kind: "open", number: 7, documentKind: "own", name: "journal/default/a/1" },
  { kind: "open", number: 8, documentKind: "journal", name: "journal/default/b/1" },
  { kind: "open", number: 300, documentKind: "shared", name: "registry/1" },
  { kind: "update", number: 7, from: 5, to: 9, committedWallMs: 1_700_000_000_000, bytes: Uint8Array.of(1, 2, 3) },
  { kind: "vector", isFirst: true, canServe: false, entries: [{ number: 1, version: 0xffff_ffff }] },
  { kind: "vector", isFirst: false, canServe: true, entries: [] },
  { kind: "want", request: 300, name: "registry/1", stateVector: Uint8Array.of(1, 2) },
  { kind: "cancel", request: 1 },
  { kind: "snapshot-want", request: 2, targets: ["x", "y"] },
  { kind: "snapshot-want", request: 3, targets: undefined },
  { kind: "statements", statements: [statement, { ...statement, isComplete: true }] },
];
const bulkMessages: BulkMessage[] = [
  { kind: "part", request: 1, goesOn: true, bytes: Uint8Array.of(9) },
  { kind: "part", request: 2, goesOn: false, bytes: new Uint8Array() },
  { kind: "end", request: 2 ** 33, outcome: "busy" },
  { kind: "credit", bytes: 65_536 },
];
const record = {
  ...{ origin, incarnation: 7, hasLeft: false, isDraining: true, address: "10.0.0.1:7000" },
  ...{ unreachable: ["engine/0"], links: ["router-b", "router-c"] },
};
const membership = [
  ...encodeMembership({ kind: "ping", number: 3, digest: 0xdead_beef }),
  ...encodeMembership({ kind: "ack", number: 300 }),
  ...encodeMembership({ kind: "records", records: [record, record] }),
  ...encodeMembership({ kind: "records", records: [{ ...record, hasLeft: true, isDraining: false, region: "eu" }] }),
  ...encodeMembership({ kind: "claims", claims: [{ origin, incarnation: 3, state: "suspect" }] }),
  ...encodeMembership({ kind: "claims", claims: [{ origin, incarnation: 2 ** 48, state: "down" }] }),
  ...encodeMembership({ kind: "probe", origin }),
  ...encodeMembership({ kind: "heard", origin }),
];
const ofRedis = { from: "00ff00ff00ff00ff.redis:1", connection: 5, isDialer: true, body: new Uint8Array() } as const;
const redisMessages: RedisMessage[] = [
  { ...ofRedis, kind: "open", counter: 0 },
  { ...ofRedis, kind: "accept", isDialer: false, counter: 0 },
  { ...ofRedis, kind: "frame", counter: 300, body: Uint8Array.of(1, 2) },
  { ...ofRedis, kind: "credit", counter: 2, body: Uint8Array.of(200, 1) },
  { ...ofRedis, kind: "reset", counter: 0 },
];
const update = { name: "journal/default/r1/5", from: 3, to: 9, bytes: Uint8Array.of(1, 2, 3) };

const targets: readonly FuzzTarget[] = [
  {
    name: "mesh hello",
    seeds: [hello],
    read(bytes) {
      decodeVersions(bytes);
      const read = decodeHello(bytes);
      expect(Buffer.byteLength(read.cluster)).toBeLessThanOrEqual(maxNameBytes);
      expect(read.capabilities.length).toBeLessThanOrEqual(32);
    },
  },
  {
    name: "mesh proof",
    seeds: [encodeProof(["old", "secret"], "dialer", transcript), encodeProof(["secret"], "dialer", transcript)],
    read(bytes) {
      // The first byte is the frame's type, by which the handshake knows what it has before it.
      const right = Buffer.from(encodeProof(["secret"], "dialer", transcript).subarray(1));
      const proofs = Array.from({ length: Math.floor((bytes.length - 1) / right.length) }, (_, at) =>
        bytes.subarray(1 + at * right.length, 1 + (at + 1) * right.length),
      );
      const isProved = proofs.some((proof) => right.equals(proof));
      expect(provedSecret(bytes, ["secret"], "dialer", transcript)).toBe(isProved ? "secret" : undefined);
    },
  },
  {
    name: "mesh reject, goodbye, credit, channel",
    seeds: [
      encodeReject({ reason: "secret", detail: "they differ", knownEpoch: 5 }),
      encodeGoodbye("replaced"),
      encodeCredit({ channel: "documents", bytes: 70_000 }),
      encodeData("load", Uint8Array.of(1)),
    ],
    read(bytes, random) {
      [decodeReject, decodeGoodbye, decodeCredit, channelOf][random.integer(4)]!(bytes);
    },
  },
  { name: "mesh documents", seeds: documentMessages.map(encodeDocumentMessage), read: decodeDocumentMessage },
  { name: "mesh bulk", seeds: bulkMessages.map(encodeBulkMessage), read: decodeBulkMessage },
  {
    name: "mesh membership",
    seeds: membership,
    refuses: isInvalidFrame,
    read(bytes) {
      const message = decodeMembership(bytes);
      if (message.kind === "records") expect(message.records.length).toBeLessThanOrEqual(frameBounds.items);
    },
  },
  { name: "mesh piece of a document", seeds: [documentPiece.encode(update)], read: documentPiece.decode },
  {
    name: "redis stored piece",
    seeds: [encodeStoredPiece(update)],
    read: (bytes) => decodeStoredPiece(bytes, maxRedisBytes),
  },
  {
    name: "redis message",
    seeds: redisMessages.map((message) => encodeRedisMessage(message)),
    read: (bytes) => decodeRedisMessage(bytes, maxRedisBytes),
  },
  {
    name: "y-websocket message",
    seeds: [Uint8Array.of(0, 0, 1, 0), Uint8Array.of(0, 2, 2, 0, 0), Uint8Array.of(1, 3, 1, 2, 3), Uint8Array.of(3)],
    read: (bytes) => readClientMessage(bytes, 65_536),
  },
  {
    name: "y-websocket request target",
    seeds: [utf8("/yjs/overview?key=secret"), utf8("/yjs/journal%2Fdefault%2Fa%2F1")],
    read: (bytes) => readDocumentRequest(textOf(bytes)),
  },
];

fuzzInFile(test, "whatever comes is read, or refused as documented", targets);

test("encoders write the bytes that routers in the field read", async () => {
  await expect(seedsInHex(targets)).toMatchFileSnapshot("golden/frames.txt");
});
