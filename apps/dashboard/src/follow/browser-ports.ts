import type { Clock, Scheduler } from "@espalier/core";
import { WebsocketProvider } from "y-websocket";
import { Doc } from "yjs";
import type { FollowDocument } from "./follower.ts";

/** Time and timers of a browser. */
export const pageTime: Clock & Scheduler = {
  nowMs: () => performance.now(),
  wallMs: () => Date.now(),
  after(delayMs, task) {
    const timer = setTimeout(task, delayMs);
    return () => clearTimeout(timer);
  },
  every(periodMs, task) {
    const timer = setInterval(task, periodMs);
    return () => clearInterval(timer);
  },
};

/**
 * Follows a document with the stock provider of y-websocket. It does not reconnect by itself: the follower retries the
 * document and the event stream together.
 */
export const followDocument: FollowDocument = ({ origin, name, key }, listener) => {
  const doc = new Doc();
  const url = `${origin.replace(/^http/, "ws")}/yjs`;
  const provider = new WebsocketProvider(url, name, doc, {
    params: key === undefined ? {} : { key },
    disableBc: true,
    shouldReconnect: () => false,
  });
  // Viewers are not shown to each other.
  provider.awareness.setLocalState(null);
  const map = doc.getMap("overview");
  let isOpen = true;
  map.observe(() => listener.sections(map.toJSON()));
  provider.on("connection-close", () => {
    if (isOpen) listener.closed();
  });
  return {
    close() {
      isOpen = false;
      provider.destroy();
      doc.destroy();
    },
  };
};
