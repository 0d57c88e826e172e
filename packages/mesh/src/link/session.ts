import type { Cancel, Scheduler } from "@espalier/common";
import type { Connection, ConnectionEnd, ConnectionObserver } from "../transport/transport.ts";
import { encodeGoodbye } from "../wire/endings.ts";
import type { HandshakeRole } from "../wire/proof.ts";
import type { DialTarget } from "./dialer.ts";
import { Handshake, type HandshakeDeps, type HandshakeResult } from "./handshake.ts";
import type { LinkEnd, PeerIdentity, RejectReason } from "./link.ts";
import type { Candidate } from "./link-table.ts";
import type { PeerLink } from "./peer-link.ts";

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
/** What the websocket protocol calls ends that a frame has caused. */
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

  /** What the other end has proved to know; undefined before that. */
  get secret(): string | undefined {
    return this.#handshake.secret;
  }

  get nonce(): Uint8Array {
    return this.#deps.handshake.nonce;
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

  /** Gives the connection up without a word to the other end. */
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
        if (result.by === "us") this.#sayReplaced();
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
    this.#over({ kind: "replaced", by: "us" });
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
