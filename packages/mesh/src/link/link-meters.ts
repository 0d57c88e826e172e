import type { CounterSeries, Meter } from "@espalier/common";
import { linkEnds, rejectReasons } from "../wire/endings.ts";
import { type Channel, channels, type DialFailure, type LinkEnd, type RejectReason } from "./link.ts";

/** The metrics of all links of a router. */
export interface LinkMeters {
  sent(channel: Channel, bytes: number): void;
  received(channel: Channel, bytes: number): void;
  dropped(channel: Channel): void;
  links(count: number): void;
  ended(why: LinkEnd): void;
  rejected(reason: RejectReason): void;
  dialFailed(kind: DialFailure["kind"]): void;
}

const dialFailureKinds: readonly DialFailure["kind"][] = ["refused", "timeout", "unreachable", "rejected"];

/** Registers the metrics of links, all series at zero. */
export function createLinkMeters(meter: Meter): LinkMeters {
  const counters = <Label extends string>(name: string, help: string, label: string, values: readonly Label[]) => {
    const metric = meter.counter({ name, help, labels: [label] });
    const series = values.map((value) => [value, metric.series(value)] as const);
    for (const [, one] of series) one.add(0);
    return Object.fromEntries(series) as Readonly<Record<Label, CounterSeries>>;
  };
  const byChannel = (name: string, help: string) => counters(`espalier_mesh_${name}`, help, "channel", channels);
  const sentBytes = byChannel("sent_bytes_total", "Bytes sent to other routers, by channel.");
  const sentFrames = byChannel("sent_frames_total", "Frames sent to other routers, by channel.");
  const receivedBytes = byChannel("received_bytes_total", "Bytes received from other routers, by channel.");
  const receivedFrames = byChannel("received_frames_total", "Frames received from other routers, by channel.");
  const dropped = byChannel("dropped_frames_total", "Frames dropped because too much waited on their channel.");
  const links = meter.gauge({ name: "espalier_mesh_links", help: "Links to other routers." }).series();
  links.set(0);
  const ends = counters("espalier_mesh_link_ends_total", "Links that ended, by reason.", "why", linkEnds);
  const rejects = counters(
    "espalier_mesh_rejects_total",
    "Handshakes refused by this router or by the other one, by reason.",
    "reason",
    rejectReasons,
  );
  const dials = counters(
    "espalier_mesh_dial_failures_total",
    "Dials of other routers that did not lead to a link, by kind of failure.",
    "kind",
    dialFailureKinds,
  );
  return {
    sent(channel, bytes) {
      sentBytes[channel].add(bytes);
      sentFrames[channel].add();
    },
    received(channel, bytes) {
      receivedBytes[channel].add(bytes);
      receivedFrames[channel].add();
    },
    dropped: (channel) => dropped[channel].add(),
    links: (count) => links.set(count),
    ended: (why) => ends[why].add(),
    rejected: (reason) => rejects[reason].add(),
    dialFailed: (kind) => dials[kind].add(),
  };
}
