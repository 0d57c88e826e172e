import { type ClientRequest, type IncomingMessage, request as sendRequest } from "node:http";
import type { Socket } from "node:net";
import { type ErrorCode, EspalierError } from "@espalier/core";
import type { AttemptLimits, AttemptOwner, AttemptTerms, RunningAttempt } from "./attempt.ts";
import type { Deadlined, Deadlines } from "./deadlines.ts";
import { classifyError, type FailureKind } from "./failure.ts";
import type { EnginePool } from "./upstream-pools.ts";

/** The client's end of a connection that an engine takes over. */
export interface Tunnel {
  /** The client has the engine's head. From here on its bytes go to this socket. */
  opened(engine: Socket): void;
  /** Whether the two have ended their conversation, so that the end of the engine's connection is in order. */
  readonly isOver: boolean;
  /** Neither side has sent anything for too long. */
  idled(): void;
}

interface UpgradeRequest {
  readonly pool: EnginePool;
  readonly path: string;
  /** For the engine, as flat pairs, without those of the upgrade itself. */
  readonly headers: readonly string[];
  readonly tunnel: Tunnel;
}

interface UpgradeLimits extends AttemptLimits {
  readonly realtimeIdleMs: number;
}

/**
 * - `dialling`. - `sent`: waits for the answer. - `refused`: the answer is no upgrade, and its body passes. - `open`: bytes pass in
 *   both directions. - `done`.
 */
type Phase = "dialling" | "sent" | "refused" | "open" | "done";

const noBytes = Buffer.alloc(0);

/**
 * One attempt to have an engine take a client's connection over, on a connection of its own. Once it has, bytes pass as they are. An
 * engine that answers with another status than 101 refuses, and its answer passes as that to any request.
 */
export class UpgradeAttempt implements RunningAttempt, Deadlined {
  slot = -1;
  readonly #owner: AttemptOwner;
  readonly #upgrade: UpgradeRequest;
  readonly #deadlines: Deadlines;
  readonly #limits: UpgradeLimits;
  readonly #terms: AttemptTerms;
  #phase: Phase = "dialling";
  #request: ClientRequest | undefined;
  #socket: Socket | undefined;
  /** Where the engine's bytes come from: its socket, or the body of a refusal. */
  #source: Socket | IncomingMessage | undefined;
  #sinceMs: number;
  #seenBytes = 0;
  #paused = false;

  constructor(
    owner: AttemptOwner,
    upgrade: UpgradeRequest,
    deadlines: Deadlines,
    limits: UpgradeLimits,
    terms: AttemptTerms,
  ) {
    this.#owner = owner;
    this.#upgrade = upgrade;
    this.#deadlines = deadlines;
    this.#limits = limits;
    this.#terms = terms;
    this.#sinceMs = deadlines.nowMs();
  }

  start(): boolean {
    const { pool, path, headers } = this.#upgrade;
    this.#deadlines.watch(this);
    const request = sendRequest({
      method: "GET",
      path,
      headers: ["host", pool.host, "connection", "Upgrade", "upgrade", "websocket", ...headers],
      createConnection: (_options, opened) => {
        this.#socket = pool.dial((error, socket) => {
          if (!error && this.#phase === "dialling") this.#enter("sent");
          opened(error, socket);
        });
        return undefined;
      },
    });
    this.#request = request;
    request.on("error", (error) => this.#broke(error));
    request.on("upgrade", (answer, socket, head) => this.#accepted(answer, socket as Socket, head));
    request.on("response", (answer) => this.#refused(answer));
    request.end();
    return true;
  }

  resume(): void {
    if (!this.#paused) return;
    this.#paused = false;
    this.#sinceMs = this.#deadlines.nowMs();
    this.#source?.resume();
  }

  cancel(): void {
    if (this.#phase === "done") return;
    this.#enter("done");
    this.#deadlines.forget(this);
    this.#request?.destroy();
    this.#socket?.destroy();
  }

  abort(error: EspalierError): void {
    if (this.#phase === "done") return;
    this.cancel();
    this.#owner.refused(error);
  }

  sweep(nowMs: number): void {
    const forMs = nowMs - this.#sinceMs;
    switch (this.#phase) {
      case "dialling":
        if (forMs >= this.#limits.connectMs) this.#failed("connect", "upstream_connect_failed");
        break;
      case "sent":
        if (forMs >= this.#limits.firstByteMs) this.#failed("timeout", "upstream_timeout");
        break;
      case "refused":
      case "open":
        this.#sweepBytes(nowMs);
        break;
    }
  }

  #sweepBytes(nowMs: number): void {
    const { bytesRead = 0, bytesWritten = 0 } = this.#socket ?? {};
    if (bytesRead + bytesWritten !== this.#seenBytes) {
      this.#seenBytes = bytesRead + bytesWritten;
      this.#sinceMs = nowMs;
      return;
    }
    const silentMs = nowMs - this.#sinceMs;
    if (this.#paused && silentMs >= this.#limits.clientWriteMs) {
      this.cancel();
      this.#owner.stalled();
    } else if (this.#phase === "refused" && !this.#paused && silentMs >= this.#limits.idleMs) {
      this.#failed("timeout", "upstream_timeout");
    } else if (this.#phase === "open" && silentMs >= this.#limits.realtimeIdleMs) {
      this.#sinceMs = nowMs;
      this.#upgrade.tunnel.idled();
    }
  }

  #accepted(answer: IncomingMessage, socket: Socket, head: Buffer): void {
    if (this.#phase !== "sent") {
      socket.destroy();
      return;
    }
    this.#source = socket;
    socket.on("error", (error) => this.#broke(error));
    socket.on("close", () => this.#closed());
    this.#enter("open");
    if (!this.#owner.answered(101, rawHeaders(answer))) {
      this.cancel();
      return;
    }
    // An answer begins with its first bytes, but an engine may wait for the client to speak.
    this.#receive(noBytes);
    if (this.#isDone()) return;
    this.#upgrade.tunnel.opened(socket);
    if (head.length > 0) this.#receive(head);
    socket.on("data", (chunk: Buffer) => this.#receive(chunk));
    socket.on("end", () => this.#closed());
  }

  #refused(answer: IncomingMessage): void {
    if (this.#phase !== "sent") return;
    this.#source = answer;
    this.#enter("refused");
    if (!this.#owner.answered(answer.statusCode!, rawHeaders(answer))) {
      this.cancel();
      return;
    }
    if (this.#isDone()) return;
    answer.on("data", (chunk: Buffer) => this.#receive(chunk));
    answer.on("end", () => this.#ended());
    answer.on("error", (error) => this.#broke(error));
  }

  #receive(chunk: Buffer): void {
    if (this.#isDone() || this.#owner.received(chunk) || this.#isDone()) return;
    this.#paused = true;
    this.#source?.pause();
  }

  #closed(): void {
    if (this.#phase !== "open") return;
    if (this.#upgrade.tunnel.isOver) this.#ended();
    else this.#failed("reset", "upstream_cut_short");
  }

  #ended(): void {
    if (this.#isDone()) return;
    this.cancel();
    this.#owner.ended();
  }

  #broke(thrown: Error): void {
    if (this.#isDone()) return;
    if (this.#phase === "open") {
      this.#closed();
      return;
    }
    const isGarbage = (thrown as NodeJS.ErrnoException).code?.startsWith("HPE_") === true;
    const stage = this.#phase === "dialling" ? "unsent" : this.#phase === "sent" ? "sent" : "begun";
    const found = isGarbage
      ? ({
          kind: "protocol",
          error: new EspalierError("upstream_protocol_error", undefined, { cause: thrown }),
        } as const)
      : classifyError(thrown, stage, true);
    if (found instanceof EspalierError) {
      this.abort(found);
      return;
    }
    if (found.kind === "reset") this.#terms.resends.broke();
    this.cancel();
    this.#owner.failed(found.kind, found.error);
  }

  #failed(kind: FailureKind, code: ErrorCode): void {
    this.cancel();
    this.#owner.failed(kind, new EspalierError(code));
  }

  #enter(phase: Phase): void {
    this.#phase = phase;
    this.#sinceMs = this.#deadlines.nowMs();
  }

  /** A callback may have ended the attempt; a method call keeps the compiler from assuming otherwise. */
  #isDone(): boolean {
    return this.#phase === "done";
  }
}

const rawHeaders = ({ rawHeaders }: IncomingMessage): Buffer[] => rawHeaders.map((text) => Buffer.from(text, "latin1"));
