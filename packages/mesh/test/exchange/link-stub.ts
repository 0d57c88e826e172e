import { asRouterId } from "@espalier/core";
import type { Link } from "../../src/link/link.ts";
import type { Channel, LinkEnd } from "../../src/wire/link-frames.ts";

/** A link that keeps what is sent on it. */
export interface LinkStub extends Link {
  readonly sent: { readonly channel: Channel; readonly frame: Uint8Array }[];
  isFull: boolean;
  closedBy: LinkEnd | undefined;
  frames(channel: Channel): Uint8Array[];
}

export function createLinkStub(router: string, epoch = 1, capabilities: readonly string[] = []): LinkStub {
  return {
    peer: { origin: { router: asRouterId(router), epoch }, address: undefined, version: 1, capabilities },
    sent: [],
    isFull: false,
    closedBy: undefined,
    bufferedBytes: 0,
    roundTripMs: Number.NaN,
    stats: { sentBytes: 0, receivedBytes: 0, sentFrames: 0, receivedFrames: 0, droppedFrames: 0, lastHeardMs: 0 },
    send(channel, frame) {
      if (this.isFull) return false;
      this.sent.push({ channel, frame });
      return true;
    },
    waitingBytes: () => 0,
    close(why) {
      this.closedBy = why;
    },
    frames(channel) {
      return this.sent.flatMap((entry) => (entry.channel === channel ? [entry.frame] : []));
    },
  };
}
