import { asRouterId, ByteReader, ByteWriter } from "@espalier/common";
import type { Origin } from "@espalier/replication";
import { frameTypes } from "./frame-types.ts";
import { nonceBytes } from "./secure-nonce.ts";

/** Protocol versions that one end speaks, both included. */
export interface VersionRange {
  readonly min: number;
  readonly max: number;
}

/** What each end says of itself first. */
export interface Hello {
  readonly versions: VersionRange;
  readonly nonce: Uint8Array;
  readonly cluster: string;
  /** SHA-256 of the fleet seed. */
  readonly seedDigest: Uint8Array;
  readonly blockSizeTokens: number;
  readonly origin: Origin;
  /** Where it can be dialed, `host:port`; undefined when it cannot. */
  readonly address: string | undefined;
  /** Names of optional parts of the protocol that it can do. */
  readonly capabilities: readonly string[];
}

/** "ESPA", so that another program's frame is told from a router's at once. */
const magic = 0x41505345;
const digestBytes = 32;
const maxVersion = 0xffff;
/** The year 10889 in milliseconds since the Unix epoch: no router's epoch is as high. */
export const maxEpoch = 2 ** 48;
export const maxNameBytes = 255;
const maxBlockSizeTokens = 1 << 20;
const maxCapabilities = 32;
const maxCapabilityBytes = 64;

/** Writes a hello frame. */
export function encodeHello(hello: Hello): Uint8Array {
  const writer = new ByteWriter();
  writer.u8(frameTypes.hello);
  writer.u32(magic);
  writer.varint(hello.versions.min);
  writer.varint(hello.versions.max);
  writer.raw(hello.nonce);
  writer.text(hello.cluster);
  writer.raw(hello.seedDigest);
  writer.varint(hello.blockSizeTokens);
  writer.text(hello.origin.router);
  writer.varint(hello.origin.epoch);
  writer.text(hello.address ?? "");
  writer.varint(hello.capabilities.length);
  for (const capability of hello.capabilities) writer.text(capability);
  return writer.copy();
}

/**
 * Reads only the versions of a hello frame: what follows them may be laid out otherwise in versions yet to come.
 *
 * @throws RangeError for a frame that is not the hello of a router
 */
export function decodeVersions(frame: Uint8Array): VersionRange {
  return readVersions(new ByteReader(frame));
}

/**
 * Reads a hello frame. Bytes after what this version knows are left alone, so that a later version may add to it.
 *
 * @throws RangeError for bytes that are no hello
 */
export function decodeHello(frame: Uint8Array): Hello {
  const reader = new ByteReader(frame);
  const versions = readVersions(reader);
  const nonce = Uint8Array.from(reader.raw(nonceBytes));
  const cluster = reader.text(maxNameBytes);
  const seedDigest = Uint8Array.from(reader.raw(digestBytes));
  const blockSizeTokens = atMost(reader.varint(), maxBlockSizeTokens, "block size");
  const router = asRouterId(reader.text(maxNameBytes));
  if (router === "") throw new RangeError("a router without an id");
  const epoch = atMost(reader.varint(), maxEpoch, "epoch");
  const address = reader.text(maxNameBytes);
  const capabilities: string[] = [];
  const count = atMost(reader.varint(), maxCapabilities, "number of capabilities");
  while (capabilities.length < count) capabilities.push(reader.text(maxCapabilityBytes));
  return {
    versions,
    nonce,
    cluster,
    seedDigest,
    blockSizeTokens,
    origin: { router, epoch },
    address: address === "" ? undefined : address,
    capabilities,
  };
}

function readVersions(reader: ByteReader): VersionRange {
  if (reader.u8() !== frameTypes.hello) throw new RangeError("a frame that is no hello");
  if (reader.u32() !== magic) throw new RangeError("a hello of another protocol");
  const min = atMost(reader.varint(), maxVersion, "version");
  const max = atMost(reader.varint(), maxVersion, "version");
  if (min > max) throw new RangeError(`versions from ${min} to ${max}`);
  return { min, max };
}

function atMost(value: number, most: number, what: string): number {
  if (value > most) throw new RangeError(`a ${what} of ${value} where ${most} is the most`);
  return value;
}

/** The highest version that both ranges hold, undefined when there is none. */
export function commonVersion(one: VersionRange, other: VersionRange): number | undefined {
  const highest = Math.min(one.max, other.max);
  return highest >= Math.max(one.min, other.min) ? highest : undefined;
}
