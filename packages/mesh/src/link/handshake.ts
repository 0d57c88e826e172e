import { createHash } from "node:crypto";
import type { Cancel, Connection, ConnectionEnd, ConnectionObserver, Scheduler } from "@espalier/core";
import type { Origin } from "../origin.ts";
import {
  commonVersion,
  decodeGoodbye,
  decodeHello,
  decodeReject,
  decodeVersions,
  encodeGoodbye,
  encodeHello,
  encodeProof,
  encodeReject,
  frameTypes,
  type HandshakeRole,
  type Hello,
  type LinkEnd,
  provedSecret,
  type Rejection,
  type RejectReason,
  type Transcript,
  type VersionRange,
} from "../wire/link-frames.ts";
import type { DialTarget } from "./dialer.ts";
import { maxHandshakeFrameBytes, maxHandshakeFrames, type PeerIdentity } from "./link.ts";
import type { Candidate } from "./link-table.ts";
import type { PeerLink } from "./peer-link.ts";

/** What this router says of itself in handshakes. */
export interface LocalIdentity {
  readonly origin: Origin;
  /** Where others can dial it, `host:port`; undefined when they cannot. */
  readonly address: string | undefined;
  readonly cluster: string;
  /** Root of all chain hashes; only its SHA-256 is sent. */
  readonly fleetSeed: string;
  readonly blockSizeTokens: number;
  /** Names of the optional parts of the protocol that it supports. */
  readonly capabilities: readonly string[];
}

/** A router with this capability takes proofs of several secrets. */
const secretsCapability = "secrets";

/** This router's decision on a peer that has proved who it is: undefined to take it. */
export type Verdict = undefined | "replaced" | Rejection;

export type HandshakeResult =
  /** `accepted`: this end has agreed, and waits for the other one to. */
  | { readonly kind: "pending" | "accepted" }
  | { readonly kind: "done"; readonly peer: PeerIdentity }
  /** Another connection to the same router is kept. `by`: the end that decided it. */
  | { readonly kind: "replaced"; readonly by: "self" | "peer" }
  /** `isProved`: the router that rejects knows the secret. */
  | {
      readonly kind: "rejected";
      readonly by: "self" | "peer";
      readonly isProved: boolean;
      readonly rejection: Rejection;
    };

export interface HandshakeDeps {
  readonly role: HandshakeRole;
  readonly local: LocalIdentity;
  readonly versions: VersionRange;
  /** One or more, the own one first. A single empty one when mesh links are not authenticated: no secret. */
  readonly secrets: readonly string[];
  readonly nonce: Uint8Array;
  /** Whether this process made the nonce: then it talks to itself. */
  isOwnNonce(nonce: Uint8Array): boolean;
  decide(peer: PeerIdentity): Verdict;
  send(frame: Uint8Array): void;
}

/**
 * The exchange before a link: both ends say hello, the dialer proves which secrets it knows, the acceptor proves that
 * it knows one of them, then both accept. Nothing is believed before the proof. Each end may reject instead of its next
 * frame.
 */
export class Handshake {
  readonly #deps: HandshakeDeps;
  #state: "hello" | "proof" | "accept" | "over" = "hello";
  #frames = 0;
  #ownHello: Uint8Array;
  #transcript: Transcript | undefined;
  peer: PeerIdentity | undefined;
  /** The secret that the other end has proved to know. */
  secret: string | undefined;

  constructor(deps: HandshakeDeps) {
    this.#deps = deps;
    const { origin, address, cluster, blockSizeTokens, fleetSeed } = deps.local;
    const capabilities = [...deps.local.capabilities, secretsCapability];
    const seedDigest = createHash("sha256").update(fleetSeed).digest();
    const { versions, nonce } = deps;
    this.#ownHello = encodeHello({
      versions,
      nonce,
      cluster,
      seedDigest,
      blockSizeTokens,
      origin,
      address,
      capabilities,
    });
  }

  /** Says hello, if this end speaks first. */
  begin(): void {
    if (this.#deps.role === "dialer") this.#deps.send(this.#ownHello);
  }

  /** Takes a frame of the other end. */
  frame(frame: Uint8Array): HandshakeResult {
    this.#frames += 1;
    try {
      if (this.#frames > maxHandshakeFrames) throw new RangeError("too many frames");
      if (frame.length > maxHandshakeFrameBytes) throw new RangeError(`a frame of ${frame.length} bytes`);
      return this.#dispatch(frame);
    } catch (error) {
      if (error instanceof RangeError) return this.reject("handshake-invalid", error.message);
      throw error;
    }
  }

  /** Ends the exchange with a rejection. */
  reject(reason: RejectReason, detail: string, knownEpoch = 0): HandshakeResult {
    const rejection = { reason, detail, knownEpoch };
    this.#state = "over";
    this.#deps.send(encodeReject(rejection));
    return { kind: "rejected", by: "self", isProved: this.secret !== undefined, rejection };
  }

  #dispatch(frame: Uint8Array): HandshakeResult {
    const [type] = frame;
    if (this.#state === "over") throw new RangeError("a frame after the end");
    if (type === frameTypes.reject) {
      const rejection = decodeReject(frame);
      this.#state = "over";
      return { kind: "rejected", by: "peer", isProved: this.secret !== undefined, rejection };
    }
    if (type === frameTypes.goodbye && this.secret !== undefined) {
      decodeGoodbye(frame);
      this.#state = "over";
      return { kind: "replaced", by: "peer" };
    }
    if (type !== frameTypes[this.#state]) throw new RangeError(`a frame of type ${type} for ${this.#state}`);
    if (this.#state === "hello") return this.#hello(frame);
    return this.#state === "proof" ? this.#proof(frame) : this.#accept(frame);
  }

  #hello(frame: Uint8Array): HandshakeResult {
    const { role, versions, local } = this.#deps;
    const theirs = decodeVersions(frame);
    const version = commonVersion(versions, theirs);
    if (version === undefined) {
      const detail = `versions ${versions.min} to ${versions.max} here, ${theirs.min} to ${theirs.max} there`;
      return this.reject("protocol-version", detail);
    }
    const hello = decodeHello(frame);
    const mismatch = this.#mismatch(hello);
    if (mismatch) return this.reject(...mismatch);
    const { origin, address, capabilities } = hello;
    if (origin.router === local.origin.router) {
      return this.reject("router-id-taken", `two routers have the id ${origin.router}`);
    }
    this.peer = { origin, address, version, capabilities };
    const theirHello = Uint8Array.from(frame);
    this.#transcript =
      role === "dialer"
        ? { dialerHello: this.#ownHello, acceptorHello: theirHello, version }
        : { dialerHello: theirHello, acceptorHello: this.#ownHello, version };
    this.#deps.send(role === "dialer" ? encodeProof(this.#provedSecrets(), role, this.#transcript) : this.#ownHello);
    this.#state = "proof";
    return { kind: "pending" };
  }

  #mismatch({ nonce, cluster, seedDigest, blockSizeTokens }: Hello): readonly [RejectReason, string] | undefined {
    const { local } = this.#deps;
    if (this.#deps.isOwnNonce(nonce)) return ["self", "a router has dialed itself"];
    if (cluster !== local.cluster) return ["cluster-name", "cluster names differ"];
    const ownDigest = createHash("sha256").update(local.fleetSeed).digest();
    if (!ownDigest.equals(seedDigest)) return ["fleet-seed", "fleet seeds differ"];
    if (blockSizeTokens === local.blockSizeTokens) return undefined;
    return ["block-size", `blocks of ${local.blockSizeTokens} tokens here, of ${blockSizeTokens} there`];
  }

  #proof(frame: Uint8Array): HandshakeResult {
    const { role } = this.#deps;
    const transcript = this.#transcript!;
    const known = role === "dialer" ? this.#provedSecrets() : this.#deps.secrets;
    const proved = provedSecret(frame, known, role === "dialer" ? "acceptor" : "dialer", transcript);
    if (proved === undefined) return this.reject("secret", "secrets differ or are missing");
    this.secret = proved;
    this.#state = "accept";
    if (role === "dialer") return { kind: "pending" };
    this.#deps.send(encodeProof([proved], role, transcript));
    return this.#conclude() ?? { kind: "accepted" };
  }

  /** The secrets that a dialer proves to know. A peer that takes one proof only gets that of the own secret. */
  #provedSecrets(): readonly string[] {
    const { secrets } = this.#deps;
    return this.peer?.capabilities?.includes(secretsCapability) ? secrets : secrets.slice(0, 1);
  }

  #accept(frame: Uint8Array): HandshakeResult {
    if (frame.length !== 1) throw new RangeError("an accept frame with a body");
    const peer = this.peer!;
    if (this.#deps.role === "dialer") {
      const refused = this.#conclude();
      if (refused) return refused;
    }
    this.#state = "over";
    return { kind: "done", peer };
  }

  /** Accepts, unless this router has a reason not to. */
  #conclude(): HandshakeResult | undefined {
    const verdict = this.#deps.decide(this.peer!);
    if (verdict === undefined) {
      this.#deps.send(Uint8Array.of(frameTypes.accept));
      return undefined;
    }
    if (verdict !== "replaced") return this.reject(verdict.reason, verdict.detail, verdict.knownEpoch);
    this.#state = "over";
    return { kind: "replaced", by: "self" };
  }
}

/** How a handshake ended without a link. */
export type SessionFailure =
  | Extract<HandshakeResult, { kind: "rejected" | "replaced" }>
  | { readonly kind: "broken"; readonly end: ConnectionEnd };

export interface SessionDeps {
  readonly connection: Connection;
  readonly role: HandshakeRole;
  /** What was dialed; undefined for connections from outside. */
  readonly target: DialTarget | undefined;
  readonly scheduler: Scheduler;
  readonly timeoutMs: number;
  readonly handshake: Omit<HandshakeDeps, "role" | "send" | "decide">;
  decide(session: Session, peer: PeerIdentity): ReturnType<HandshakeDeps["decide"]>;
  /** This end has accepted and waits for the other one. */
  onAccepted(session: Session): void;
  /** Both ends have accepted. @returns undefined when another connection is kept after all */
  onDone(session: Session, peer: PeerIdentity): PeerLink | undefined;
  onFailed(session: Session, failure: SessionFailure): void;
}

const rejectedCode = 4_000;
/** Close codes of the websocket protocol for ends that a frame has caused. */
const frameCodes: ReadonlySet<number> = new Set([1002, 1003, 1007, 1009]);

/** One connection, from its opening to its end: first the handshake, then perhaps a link. */
export class Session implements ConnectionObserver {
  readonly #deps: SessionDeps;
  readonly #handshake: Handshake;
  readonly #cancelTimeout: Cancel;
  #state: "handshake" | "link" | "over" = "handshake";
  #link: PeerLink | undefined;
  /** Set while this end has accepted and the other one has not. */
  candidate: Candidate | undefined;

  constructor(deps: SessionDeps) {
    this.#deps = deps;
    const { connection, role, handshake, scheduler, timeoutMs } = deps;
    this.#handshake = new Handshake({
      ...handshake,
      role,
      send: (frame) => connection.send(frame),
      decide: (peer) => deps.decide(this, peer),
    });
    this.#cancelTimeout = scheduler.after(timeoutMs, () => {
      this.refuse("handshake-timeout", `the handshake took more than ${timeoutMs} ms`);
    });
  }

  get connection(): Connection {
    return this.#deps.connection;
  }

  get role(): HandshakeRole {
    return this.#deps.role;
  }

  get target(): DialTarget | undefined {
    return this.#deps.target;
  }

  /** The secret that the other end has proved to know; undefined before that. */
  get secret(): string | undefined {
    return this.#handshake.secret;
  }

  get nonce(): Uint8Array {
    return this.#deps.handshake.nonce;
  }

  /** Who the other end says it is; undefined before that. Nothing is proved of it. */
  get claimed(): PeerIdentity | undefined {
    return this.#handshake.peer;
  }

  begin(): void {
    this.#handshake.begin();
  }

  frame(frame: Uint8Array): void {
    if (this.#state === "link") this.#link?.receive(frame);
    else if (this.#state === "handshake") this.#apply(this.#handshake.frame(frame));
  }

  drained(): void {
    this.#link?.drained();
  }

  closed(end: ConnectionEnd): void {
    const isFrameInvalid = frameCodes.has(end.code);
    if (this.#state === "link") {
      this.#link?.end(isFrameInvalid ? "frame-invalid" : "reset");
    } else if (this.#state === "handshake" && isFrameInvalid && end.kind === "error") {
      this.#apply(this.#handshake.reject("handshake-invalid", end.reason));
    } else if (this.#state === "handshake") {
      this.#over({ kind: "broken", end });
    }
  }

  /** Ends the handshake, if it is not done. */
  refuse(reason: RejectReason, detail: string): void {
    if (this.#state === "handshake") this.#apply(this.#handshake.reject(reason, detail));
  }

  /** Closes the connection without a message to the other end. */
  abandon(): void {
    if (this.#state !== "handshake") return;
    this.#state = "over";
    this.#cancelTimeout();
    this.connection.terminate();
  }

  #apply(result: HandshakeResult): void {
    switch (result.kind) {
      case "pending":
        return;
      case "accepted":
        this.#deps.onAccepted(this);
        return;
      case "done":
        this.#done(result.peer);
        return;
      case "replaced":
        if (result.by === "self") this.#sayReplaced();
        else this.connection.close(1000, "");
        this.#over(result);
        return;
      case "rejected":
        this.connection.close(rejectedCode, result.rejection.reason);
        this.#over(result);
    }
  }

  #done(peer: PeerIdentity): void {
    this.#cancelTimeout();
    this.#state = "link";
    this.#link = this.#deps.onDone(this, peer);
    if (this.#link) return;
    this.#sayReplaced();
    this.#over({ kind: "replaced", by: "self" });
  }

  #sayReplaced(): void {
    const why: LinkEnd = "replaced";
    this.connection.send(encodeGoodbye(why));
    this.connection.close(1000, why);
  }

  #over(failure: SessionFailure): void {
    this.#state = "over";
    this.#cancelTimeout();
    this.#deps.onFailed(this, failure);
  }
}
