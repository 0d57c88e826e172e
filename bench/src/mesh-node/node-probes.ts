import type { Clock, Random, Scheduler } from "@espalier/core";
import { mixWord } from "@espalier/core";
import { type PrefixIndex, tier } from "@espalier/prefix-index";
import type { Replica, TargetSlots } from "@espalier/shared-tree";
import { textBits } from "../support/text-bits.ts";
import { EventTimes, EventTimesByRouter } from "./event-times.ts";
import { createJittered } from "./jittered.ts";
import type { WallTime } from "./wall-time.ts";

export interface NodeProbesOptions {
  readonly routerId: string;
  readonly replica: Pick<Replica, "openFeed" | "store" | "fold">;
  readonly index: PrefixIndex;
  readonly slots: TargetSlots;
  readonly wallTime: WallTime;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly probesPerS: number;
}

/** Blocks that are stored to measure how long they take to reach the other nodes' indexes. */
export interface NodeProbes {
  readonly sent: EventTimes;
  readonly seen: EventTimesByRouter;
  start(): void;
  stop(): void;
}

/** A probe's block is removed after this many later ones. */
const livingProbes = 128;

/** Key of the target whose blocks are a router's probes. */
export const probeTarget = (routerId: string): string => `probe/${routerId}`;

/**
 * Each probe is one message of a separate feed, numbered by its sequence, and takes the path of every other message:
 * ledger's sink, journal, link, journal, fold, index. A receiver looks when facts came, after they were folded.
 */
export function createNodeProbes(options: NodeProbesOptions): NodeProbes {
  const { routerId, replica, index, slots, wallTime, clock, scheduler, random } = options;
  const sent = new EventTimes();
  const seen = new EventTimesByRouter();
  const latest = new Map<string, number>();
  const words = new Uint32Array(2);
  let next = 0;
  const own = textBits(routerId);
  const reader = replica.openFeed(probeTarget(routerId), (sink) => {
    for (let probe = Math.max(0, next - livingProbes); probe < next; probe++) {
      sink.stored(tier.gpu, probeWords(words, own, probe), 0, 1);
    }
  });
  reader.setRole("owner");
  reader.setQuality("complete", "live", "probes", null);
  const send = (): void => {
    const probe = next++;
    sent.add(probe, wallTime.nowMs());
    const { sink } = reader;
    if (probe >= livingProbes) sink.removed(tier.gpu, probeWords(words, own, probe - livingProbes), 0, 1);
    sink.stored(tier.gpu, probeWords(words, own, probe), 0, 1);
    reader.batch({ sequence: probe, timestampUs: Math.floor(clock.wallMs() * 1_000), checksum: mixWord(probe) }, true);
  };
  const isVisible = (router: string, target: string, probe: number): boolean => {
    probeWords(words, textBits(router), probe);
    return index.findByLow(slots.find(target), tier.gpu, words[0]!) === 1 && index.foundHigh === words[1]!;
  };
  const look = (router: string): void => {
    const target = probeTarget(router);
    const reached = replica.fold.state(target)?.last?.sequence ?? -1;
    const before = latest.get(router) ?? -1;
    latest.set(router, reached);
    if (reached <= before || !isVisible(router, target, reached)) return;
    const nowMs = wallTime.nowMs();
    const list = seen.of(router);
    // A probe that came in a snapshot has no arrival time.
    for (let probe = Math.max(before + 1, reached - livingProbes); probe <= reached; probe++) list.add(probe, nowMs);
  };
  replica.store.observe({
    feedDeclared: () => {},
    claimChanged: () => {},
    facts: ({ router }) => look(router),
    placements: () => {},
    journalDropped: ({ router }) => latest.delete(router),
  });
  return {
    ...createJittered({ scheduler, random, ratePerS: options.probesPerS, task: send }),
    sent,
    seen,
  };
}

function probeWords(words: Uint32Array, router: number, probe: number): Uint32Array {
  words[0] = mixWord(router ^ mixWord(probe + 1));
  words[1] = mixWord(words[0]! ^ Math.imul(router, 0x9e37_79b1) ^ probe);
  return words;
}
