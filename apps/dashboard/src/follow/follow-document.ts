import { WebsocketProvider } from "y-websocket";
import { Doc } from "yjs";

export interface DocumentListener {
  /** The whole map of the document, whenever it has changed. */
  sections(sections: unknown): void;
  closed(): void;
}

/** Follows the map `overview` of a document at a router. */
export type FollowDocument = (
  at: { readonly origin: string; readonly name: string; readonly key: string | undefined },
  listener: DocumentListener,
) => { close(): void };

/**
 * Through the stock provider of y-websocket. It does not connect again by itself: when to try again is decided for all that
 * is asked of a router together.
 */
export const followDocument: FollowDocument = ({ origin, name, key }, listener) => {
  const doc = new Doc();
  const url = `${origin.replace(/^http/, "ws")}/yjs`;
  const provider = new WebsocketProvider(url, name, doc, {
    params: key === undefined ? {} : { key },
    disableBc: true,
    shouldReconnect: () => false,
  });
  // Nobody is to be told who looks.
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
