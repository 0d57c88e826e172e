import { asRouterId, createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { maxEpoch } from "../../src/origin.ts";
import {
  channelOf,
  channels,
  commonVersion,
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
  frameTypes,
  type Hello,
  linkEnds,
  maxNameBytes,
  maxSecrets,
  provedSecret,
  rejectReasons,
} from "../../src/wire/link-frames.ts";
import { createNonce } from "../../src/wire/secure-nonce.ts";

const random = createSeededRandom(3);
const randomBytes = (length: number): Uint8Array => new Uint8Array(length).map(() => random.integer(256));
const randomText = (longest: number): string =>
  String.fromCodePoint(...Array.from({ length: random.integer(longest) }, () => 32 + random.integer(0x1f00)));

function someHello(): Hello {
  const min = random.integer(100);
  return {
    versions: { min, max: min + random.integer(10) },
    nonce: randomBytes(32),
    cluster: randomText(60),
    seedDigest: randomBytes(32),
    blockSizeTokens: 1 + random.integer(1_000),
    origin: { router: asRouterId(`r${randomText(60)}`), epoch: random.integer(2 ** 32) * 2 ** 15 },
    address: random.float() < 0.3 ? undefined : `x${randomText(40)}`,
    capabilities: Array.from({ length: random.integer(33) }, () => randomText(16)),
  };
}

describe("a hello", () => {
  test("is read as it was written", () => {
    for (let round = 0; round < 300; round++) {
      const hello = someHello();
      const frame = encodeHello(hello);
      expect(decodeHello(frame)).toEqual(hello);
      expect(decodeVersions(frame)).toEqual(hello.versions);
    }
  });

  test("does not hold on to the frame that it was read from", () => {
    const hello = someHello();
    const frame = encodeHello(hello);
    const read = decodeHello(frame);
    frame.fill(0);
    expect(read).toEqual(hello);
  });

  test("cut short anywhere is a RangeError; longer than known is not", () => {
    const frame = encodeHello({ ...someHello(), capabilities: ["a"] });
    for (let length = 0; length < frame.length; length++) {
      expect(() => decodeHello(frame.subarray(0, length))).toThrow(RangeError);
    }
    expect(decodeHello(Uint8Array.from([...frame, 1, 2, 3]))).toEqual(decodeHello(frame));
  });

  test.each<[string, Partial<Hello>]>([
    ["a cluster name", { cluster: "x".repeat(maxNameBytes + 1) }],
    ["a router id", { origin: { router: asRouterId("x".repeat(maxNameBytes + 1)), epoch: 1 } }],
    ["no router id", { origin: { router: asRouterId(""), epoch: 1 } }],
    ["an epoch", { origin: { router: asRouterId("x"), epoch: maxEpoch + 1 } }],
    ["an address", { address: "x".repeat(maxNameBytes + 1) }],
    ["a number of capabilities", { capabilities: Array.from({ length: 33 }, () => "x") }],
    ["a capability", { capabilities: ["x".repeat(65)] }],
    ["a block size", { blockSizeTokens: 2 ** 20 + 1 }],
    ["a version", { versions: { min: 1, max: 65_536 } }],
    ["no version", { versions: { min: 2, max: 1 } }],
  ])("past a bound is a RangeError: %s", (_, fields) => {
    expect(() => decodeHello(encodeHello({ ...someHello(), ...fields }))).toThrow(RangeError);
  });

  test.each<[string, Partial<Hello>]>([
    ["names", { cluster: "x".repeat(maxNameBytes), address: "y".repeat(maxNameBytes) }],
    ["an epoch", { origin: { router: asRouterId("x".repeat(maxNameBytes)), epoch: maxEpoch } }],
    ["capabilities", { capabilities: Array.from({ length: 32 }, () => "x".repeat(64)) }],
  ])("at a bound is read, and fits into a frame of the handshake: %s", (_, fields) => {
    const hello = { ...someHello(), ...fields };
    const frame = encodeHello(hello);
    expect(decodeHello(frame)).toEqual(hello);
    expect(frame.length).toBeLessThan(4_096);
  });
});

test("the version of two ends is the highest that both speak", () => {
  expect(commonVersion({ min: 1, max: 3 }, { min: 2, max: 9 })).toBe(3);
  expect(commonVersion({ min: 1, max: 1 }, { min: 1, max: 1 })).toBe(1);
  expect(commonVersion({ min: 1, max: 1 }, { min: 2, max: 3 })).toBeUndefined();
  expect(commonVersion({ min: 4, max: 5 }, { min: 2, max: 3 })).toBeUndefined();
});

describe("a proof", () => {
  const transcript = { dialerHello: randomBytes(120), acceptorHello: randomBytes(130), version: 1 };
  const proof = encodeProof(["secret"], "dialer", transcript);

  test("is good for its secret, role, hellos and version", () => {
    expect(proof).toHaveLength(33);
    expect(provedSecret(proof, ["secret"], "dialer", transcript)).toBe("secret");
  });

  test("is good for nothing else", () => {
    expect(provedSecret(proof, ["another"], "dialer", transcript)).toBeUndefined();
    expect(provedSecret(proof, [""], "dialer", transcript)).toBeUndefined();
    expect(provedSecret(proof, ["secret"], "acceptor", transcript)).toBeUndefined();
    expect(provedSecret(proof, ["secret"], "dialer", { ...transcript, version: 2 })).toBeUndefined();
    const swapped = { ...transcript, dialerHello: transcript.acceptorHello, acceptorHello: transcript.dialerHello };
    expect(provedSecret(proof, ["secret"], "dialer", swapped)).toBeUndefined();
    const { dialerHello, acceptorHello } = transcript;
    const moved = {
      version: 1,
      dialerHello: dialerHello.slice(0, -1),
      acceptorHello: Uint8Array.from([dialerHello.at(-1)!, ...acceptorHello]),
    };
    expect(provedSecret(proof, ["secret"], "dialer", moved)).toBeUndefined();
    for (let at = 1; at < proof.length; at++) {
      const changed = proof.slice();
      changed[at]! ^= 1 << random.integer(8);
      expect(provedSecret(changed, ["secret"], "dialer", transcript)).toBeUndefined();
    }
  });

  test.each([0, 1, 32, 34, 64, 66, 1 + 32 * (maxSecrets + 1)])("of %d bytes is none", (length) => {
    expect(() => provedSecret(new Uint8Array(length), ["secret"], "dialer", transcript)).toThrow(RangeError);
  });

  test("of several secrets proves the first of them that is known, whichever it is", () => {
    const all = encodeProof(["a", "b", "c", "d"], "dialer", transcript);
    expect(all).toHaveLength(1 + 32 * maxSecrets);
    const proved = (...known: readonly string[]) => provedSecret(all, known, "dialer", transcript);
    expect(proved("d")).toBe("d");
    expect(proved("x", "c", "b")).toBe("b");
    expect(proved("d", "c", "b", "a")).toBe("a");
    expect(proved("x", "y", "z")).toBeUndefined();
    expect(proved()).toBeUndefined();
  });

  test("nonces differ", () => {
    const nonces = Array.from({ length: 1_000 }, () => createNonce().join());
    expect(new Set(nonces).size).toBe(1_000);
  });
});

describe("endings", () => {
  test("every reason is read as it was written", () => {
    for (const reason of rejectReasons) {
      const rejection = { reason, detail: "why it is so", knownEpoch: 1_700_000_000_000 };
      expect(decodeReject(encodeReject(rejection))).toEqual(rejection);
    }
    for (const why of linkEnds) expect(decodeGoodbye(encodeGoodbye(why))).toBe(why);
  });

  test("a long detail is cut, wherever that is", () => {
    const { detail } = decodeReject(encodeReject({ reason: "self", detail: "😀".repeat(200), knownEpoch: 0 }));
    expect(detail).toBe("😀".repeat(64));
    const odd = decodeReject(encodeReject({ reason: "self", detail: `x${"😀".repeat(200)}`, knownEpoch: 0 }));
    expect(odd.detail).toBe(`x${"😀".repeat(63)}\uFFFD`);
  });

  test("unknown reasons, absurd epochs and bytes too many are RangeErrors", () => {
    const frame = encodeReject({ reason: "self", detail: "", knownEpoch: 0 });
    expect(() => decodeReject(Uint8Array.of(frameTypes.reject, 200, 0, 0))).toThrow(RangeError);
    expect(() => decodeReject(Uint8Array.from([...frame, 0]))).toThrow(RangeError);
    expect(() => decodeReject(encodeReject({ reason: "self", detail: "", knownEpoch: maxEpoch + 1 }))).toThrow(
      RangeError,
    );
    const ofDetail = (bytes: number) =>
      Uint8Array.of(frameTypes.reject, 0, 0, (bytes % 128) + 128, Math.floor(bytes / 128), ...Array(bytes).fill(97));
    expect(decodeReject(ofDetail(512)).detail).toHaveLength(512);
    expect(() => decodeReject(ofDetail(513))).toThrow(RangeError);
    for (const bytes of [[5], [5, 200], [5, 0, 0]]) {
      expect(() => decodeGoodbye(Uint8Array.from(bytes))).toThrow(RangeError);
    }
  });
});

describe("frames of a link", () => {
  test("carry their channel before the payload", () => {
    for (const [index, channel] of channels.entries()) {
      const frame = encodeData(channel, Uint8Array.of(7, 8));
      expect([...frame]).toEqual([frameTypes.data, index, 7, 8]);
      expect(channelOf(frame)).toBe(channel);
    }
    expect(() => channelOf(Uint8Array.of(frameTypes.data, channels.length))).toThrow(RangeError);
    expect(() => channelOf(Uint8Array.of(frameTypes.data))).toThrow(RangeError);
  });

  test("credit is read as it was written, and nothing else is", () => {
    for (const channel of channels) {
      expect(decodeCredit(encodeCredit({ channel, bytes: 524_288 }))).toEqual({ channel, bytes: 524_288 });
    }
    for (const bytes of [[7], [7, 9, 1], [7, 0], [7, 0, 1, 1], [7, 0, 255]]) {
      expect(() => decodeCredit(Uint8Array.from(bytes))).toThrow(RangeError);
    }
  });
});

test("arbitrary bytes give what was meant or a RangeError, from every decoder", () => {
  const decoders = [decodeHello, decodeVersions, decodeReject, decodeGoodbye, decodeCredit, channelOf];
  const seeds = [encodeHello(someHello()), encodeReject({ reason: "secret", detail: "détail", knownEpoch: 5 })];
  for (let round = 0; round < 4_000; round++) {
    const bytes = round % 2 === 0 ? randomBytes(random.integer(300)) : seeds[random.integer(2)]!.slice();
    for (let flips = random.integer(4); flips > 0; flips--) bytes[random.integer(bytes.length)] = random.integer(256);
    for (const decode of decoders) {
      try {
        decode(bytes);
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
      }
    }
  }
});
