import type { Cancel } from "@espalier/core";
import type { Link } from "../link/link.ts";
import { originKey } from "../origin.ts";
import type { ReplicaPorts, SnapshotRequest, SnapshotSink } from "../replica-ports.ts";
import type { BulkOutcome, BulkReceiver, BulkSender } from "./bulk-transfer.ts";
import { encodeDocumentMessage, type SnapshotWantMessage } from "./document-frames.ts";
import type { ExchangeParts } from "./exchange-parts.ts";
import { readFromPeer } from "./peer-fault.ts";

export interface SnapshotExchangeDeps extends Pick<ExchangeParts, "clock" | "logger" | "limits" | "meter"> {
  readonly snapshots: ReplicaPorts["snapshots"];
  readonly sender: BulkSender;
  readonly receiver: BulkReceiver;
  /** Whether a peer has said that it has state to give, and how many documents it knows. */
  offer(link: Link): { readonly canServe: boolean; readonly documents: number };
  /** Whether more peers may still come: a router that joins waits for one that has state. */
  mayComeMore(): boolean;
  /** The first state has come, or no peer has any. */
  joined(): void;
}

interface Pending {
  readonly request: SnapshotRequest;
  readonly tried: Set<Link>;
  /** This router has just come, and needs everything before it asks for journals. */
  readonly isJoin: boolean;
  /** A peer has answered without it: the replica asks again when no other peer is left. */
  readonly wasAnswered: boolean;
}

interface Import {
  readonly pending: readonly Pending[];
  readonly sink: SnapshotSink;
  readonly request: number;
}

/** Fetches the state of targets from peers, and serves it to them. One import at a time from each peer. */
export class SnapshotExchange {
  readonly #deps: SnapshotExchangeDeps;
  readonly #imports = new Map<Link, Import | undefined>();
  #pending: Pending[] = [];
  #hasJoined: boolean;
  #unlisten: Cancel = () => {};

  /** @param isJoining whether this router has no state yet */
  constructor(deps: SnapshotExchangeDeps, isJoining: boolean) {
    this.#deps = deps;
    this.#hasJoined = !isJoining;
    if (isJoining) {
      this.#pending.push({
        request: { targets: undefined, from: undefined },
        tried: new Set(),
        isJoin: true,
        wasAnswered: false,
      });
    }
  }

  start(): void {
    this.#unlisten = this.#deps.snapshots.onRequest((request) => this.#request(request));
  }

  stop(): void {
    this.#unlisten();
    for (const [link, active] of this.#imports) {
      if (active === undefined) continue;
      this.#deps.receiver.abandon(link, active.request);
      active.sink.abort();
    }
    this.#imports.clear();
  }

  /** Whether this router has the state that it joined for; before, it has none to give. */
  get hasJoined(): boolean {
    return this.#hasJoined;
  }

  linkUp(link: Link): void {
    this.#imports.set(link, undefined);
  }

  /** The receiver has told the imports of this link that it is lost. */
  linkDown(link: Link): void {
    this.#imports.delete(link);
    for (const { tried } of this.#pending) tried.delete(link);
  }

  /** Answers a peer. */
  serve(link: Link, { request, targets }: SnapshotWantMessage): void {
    const { limits, meter, sender, snapshots } = this.#deps;
    if (!this.#hasJoined) {
      sender.refuse(link, request, "none");
      return;
    }
    meter.snapshot("served");
    const messages = snapshots.exportFrames(limits.snapshotMessageBytes, targets, link.peer.origin);
    sender.answer(link, { request, kind: "snapshot", messages });
  }

  /** Sends the requests that are possible now. Called when links or offers change, and now and then. */
  pump(): void {
    for (const [link, active] of [...this.#imports]) if (active === undefined) this.#ask(link);
    this.#giveUp();
  }

  #request(request: SnapshotRequest): void {
    const isKnown = request.targets === undefined && this.#pending.some(({ request: { targets } }) => !targets);
    if (isKnown) return;
    const { maxSnapshotRequests, maxTargetsPerRequest } = this.#deps.limits;
    const { targets, from } = request;
    for (let at = 0; at === 0 || at < (targets?.length ?? 0); at += maxTargetsPerRequest) {
      const some = { targets: targets?.slice(at, at + maxTargetsPerRequest), from };
      if (this.#pending.length < maxSnapshotRequests) {
        this.#pending.push({ request: some, tried: new Set(), isJoin: false, wasAnswered: false });
      } else this.#unavailable(some);
    }
    this.pump();
  }

  #ask(link: Link): void {
    const { meter, receiver, snapshots } = this.#deps;
    const pending = this.#choose(link);
    if (pending.length === 0) return;
    const targets = targetsOf(pending);
    const sink = snapshots.beginImport();
    const request = receiver.expect(link, {
      message: (bytes) => readFromPeer(() => sink.frame(bytes)),
      end: (outcome) => this.#ended(link, outcome),
    });
    const frame = encodeDocumentMessage({ kind: "snapshot-want", request: request ?? 0, targets });
    if (request === undefined || !link.send("documents", frame)) {
      if (request !== undefined) receiver.abandon(link, request);
      sink.abort();
      meter.dropped("snapshot");
      return;
    }
    meter.sent("snapshot", frame.length);
    const chosen = new Set(pending);
    this.#pending = this.#pending.filter((one) => !chosen.has(one));
    this.#imports.set(link, { pending, sink, request });
  }

  /** What to ask this peer for next, in one request. */
  #choose(link: Link): Pending[] {
    const chosen: Pending[] = [];
    let targets = 0;
    for (const one of this.#pending) {
      if (this.#best(one) !== link) continue;
      const more = one.request.targets?.length;
      if (more === undefined) return chosen.length === 0 ? [one] : chosen;
      if (chosen.length > 0 && targets + more > this.#deps.limits.maxTargetsPerRequest) break;
      targets += more;
      chosen.push(one);
    }
    return chosen;
  }

  /** The peer to ask next: the one known to have it, else the one with most documents among those that have state. */
  #best({ request, tried }: Pending): Link | undefined {
    let best: Link | undefined;
    let bestDocuments = -1;
    for (const link of this.#imports.keys()) {
      const { canServe, documents } = this.#deps.offer(link);
      if (!canServe || tried.has(link)) continue;
      if (request.from !== undefined && originKey(request.from) === originKey(link.peer.origin)) return link;
      if (documents <= bestDocuments) continue;
      best = link;
      bestDocuments = documents;
    }
    return best;
  }

  #ended(link: Link, outcome: BulkOutcome | "lost" | "silent"): void {
    const active = this.#imports.get(link);
    if (active === undefined) return;
    this.#imports.set(link, undefined);
    if (outcome === "whole") {
      this.#askOthers(link, active, new Set(active.sink.end()));
      this.#deps.meter.snapshot("imported");
      if (active.pending.some(({ isJoin }) => isJoin)) this.#join();
    } else {
      active.sink.abort();
      this.#deps.meter.snapshot("failed");
      this.#deps.logger.info("peer sent no snapshot", { from: originKey(link.peer.origin), outcome });
      for (const one of active.pending) if (outcome !== "busy") one.tried.add(link);
      this.#pending.unshift(...active.pending);
    }
    if (outcome !== "busy") this.pump();
  }

  /** A peer that waits for state itself has none to give: another one may have what its answer lacks. */
  #askOthers(link: Link, { pending }: Import, done: ReadonlySet<string>): void {
    for (const { request, tried } of pending) {
      const lacking = request.targets?.filter((target) => !done.has(target)) ?? [];
      if (lacking.length === 0) continue;
      tried.add(link);
      this.#pending.push({ request: { ...request, targets: lacking }, tried, isJoin: false, wasAnswered: true });
    }
  }

  /** Gives up requests that no peer can answer. */
  #giveUp(): void {
    const hopeless = this.#pending.filter((one) => {
      if (one.isJoin && this.#deps.mayComeMore()) return false;
      return this.#best(one) === undefined;
    });
    if (hopeless.length === 0) return;
    this.#pending = this.#pending.filter((one) => !hopeless.includes(one));
    for (const { request, isJoin, wasAnswered } of hopeless) {
      if (!wasAnswered) this.#unavailable(request);
      if (isJoin) this.#join();
    }
  }

  #unavailable(request: SnapshotRequest): void {
    this.#deps.meter.snapshot("unavailable");
    this.#deps.snapshots.unavailable(request);
  }

  #join(): void {
    this.#hasJoined = true;
    this.#deps.joined();
  }
}

function targetsOf(pending: readonly Pending[]): readonly string[] | undefined {
  const targets = new Set<string>();
  for (const { request } of pending) {
    if (request.targets === undefined) return undefined;
    for (const target of request.targets) targets.add(target);
  }
  return [...targets];
}
