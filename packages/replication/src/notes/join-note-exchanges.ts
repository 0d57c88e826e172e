import type { NoteExchange } from "./note-exchange.ts";

/** Makes one exchange of several, each for the frames that begin with a byte of their own. Frames of other kinds are ignored. */
export function joinNoteExchanges(byKind: ReadonlyMap<number, NoteExchange>): NoteExchange {
  const all = [...byKind.values()];
  return {
    onFrame(listener) {
      const cancels = all.map((each) => each.onFrame(listener));
      return () => {
        for (const cancel of cancels) cancel();
      };
    },
    fullFrames: () => all.flatMap((each) => each.fullFrames()),
    relayFrames: () => all.flatMap((each) => each.relayFrames()),
    receive: (frame) => byKind.get(frame[0] ?? 0)?.receive(frame),
  };
}
