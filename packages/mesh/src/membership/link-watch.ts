import type { Clock, Random, RouterId } from "@espalier/common";
import type { Origin } from "@espalier/replication";
import type { Link } from "../link/link.ts";
import { encodeMembership } from "./membership-frames.ts";
import type { MembershipLimits } from "./membership-limits.ts";
import type { OwnTime } from "./own-time.ts";

/** Others that are asked whether they hear a silent peer (k of SWIM). */
const maxProbed = 3;
/** Peers that one router asks about at a time, per link: more are not answered. */
const maxWaitingProbes = 16;

interface WatchedLink {
  readonly link: Link;
  readonly upAtMs: number;
  heardAtMs: number;
  pingNumber: number;
  pingedAtMs: number;
  /** On the clock, for the round trip. */
  pingClockMs: number;
  /** Others were asked during this silence. */
  isProbed: boolean;
  /** Who wants to hear when the ping of this number is answered. */
  readonly askers: Map<Link, number>;
}

export interface LinkWatchDeps {
  readonly clock: Clock;
  readonly ownTime: OwnTime;
  readonly random: Random;
  readonly limits: MembershipLimits;
  /** The digest that pings carry. */
  digest(): number;
  /** Nothing was heard on a link for too long. */
  silent(link: Link): void;
  probed(origin: Origin): void;
}

/** Pings links, measures them, notices silence, and asks others about it. */
export class LinkWatch {
  readonly #deps: LinkWatchDeps;
  readonly #watched = new Map<RouterId, WatchedLink>();

  constructor(deps: LinkWatchDeps) {
    this.#deps = deps;
  }

  add(link: Link): void {
    const nowMs = this.#deps.ownTime.nowMs();
    const watched: WatchedLink = {
      link,
      upAtMs: nowMs,
      heardAtMs: nowMs,
      pingNumber: 0,
      pingedAtMs: nowMs,
      pingClockMs: 0,
      isProbed: false,
      askers: new Map(),
    };
    this.#watched.set(link.peer.origin.router, watched);
    this.#ping(watched);
  }

  remove(link: Link): void {
    if (this.#of(link)) this.#watched.delete(link.peer.origin.router);
    for (const { askers } of this.#watched.values()) askers.delete(link);
  }

  heard(link: Link): void {
    const watched = this.#of(link);
    if (!watched) return;
    watched.heardAtMs = this.#deps.ownTime.nowMs();
    watched.isProbed = false;
  }

  /** For how long the link has been up, in own time. */
  ageMs(link: Link): number {
    const watched = this.#of(link);
    return watched ? this.#deps.ownTime.nowMs() - watched.upAtMs : 0;
  }

  acknowledged(link: Link, number: number): void {
    const watched = this.#of(link);
    if (!watched || number > watched.pingNumber) return;
    if (number === watched.pingNumber) link.roundTripMs = this.#deps.clock.nowMs() - watched.pingClockMs;
    const { origin } = link.peer;
    for (const [asker, wanted] of watched.askers) {
      if (number < wanted) continue;
      watched.askers.delete(asker);
      for (const frame of encodeMembership({ kind: "heard", origin })) asker.send("membership", frame);
    }
  }

  /** `asker` wants to know whether that router is heard: it is pinged, and an answer to that very ping is passed on. */
  probe(asker: Link, origin: Origin): void {
    const watched = this.#watched.get(origin.router);
    if (!watched || watched.link === asker || watched.link.peer.origin.epoch !== origin.epoch) return;
    if (!watched.askers.has(asker) && watched.askers.size >= maxWaitingProbes) return;
    watched.askers.set(asker, watched.pingNumber + 1);
    this.#ping(watched);
  }

  /** Asks up to three others, drawn at random, whether they hear that router. */
  askOthers(origin: Origin): void {
    const others = [...this.#watched.values()].filter(({ link, isProbed }) => {
      return !isProbed && link.peer.origin.router !== origin.router;
    });
    if (others.length === 0) return;
    this.#deps.probed(origin);
    const [frame] = encodeMembership({ kind: "probe", origin });
    for (let asked = 0; asked < maxProbed && others.length > 0; asked++) {
      const [chosen] = others.splice(this.#deps.random.integer(others.length), 1);
      chosen!.link.send("membership", frame!);
    }
  }

  /** @param scale by how much this router's own slowness stretches its judgement */
  tick(scale: number): void {
    const { limits, ownTime } = this.#deps;
    const nowMs = ownTime.nowMs();
    for (const watched of [...this.#watched.values()]) {
      const silentMs = nowMs - watched.heardAtMs;
      const pingedMs = nowMs - watched.pingedAtMs;
      if (silentMs >= limits.silentMs * scale) {
        this.#deps.silent(watched.link);
        continue;
      }
      if (pingedMs >= limits.busyPingMs || (silentMs >= limits.pingMs && pingedMs >= limits.pingMs)) {
        this.#ping(watched);
      }
      if (silentMs >= limits.probeMs * scale && !watched.isProbed) {
        watched.isProbed = true;
        this.askOthers(watched.link.peer.origin);
      }
    }
  }

  #ping(watched: WatchedLink): void {
    watched.pingNumber += 1;
    watched.pingedAtMs = this.#deps.ownTime.nowMs();
    watched.pingClockMs = this.#deps.clock.nowMs();
    const message = { kind: "ping", number: watched.pingNumber, digest: this.#deps.digest() } as const;
    for (const frame of encodeMembership(message)) watched.link.send("membership", frame);
  }

  #of(link: Link): WatchedLink | undefined {
    const watched = this.#watched.get(link.peer.origin.router);
    return watched?.link === link ? watched : undefined;
  }
}
