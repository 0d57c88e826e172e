/** One server-sent event. */
export interface StreamEvent {
  readonly event: string;
  readonly data: string;
}

/** Characters of an event that has not ended; with more the stream is not what it says. */
export const maxEventLength = 1_048_576;

/**
 * Cuts a stream of server-sent events into events, however it comes in pieces. Comments are passed over.
 *
 * @returns takes a piece, returns the events that end in it; throws RangeError for an event that does not end
 */
export function createEventReader(): (piece: string) => readonly StreamEvent[] {
  let rest = "";
  return (piece) => {
    const parts = (rest + piece).replaceAll("\r\n", "\n").split("\n\n");
    rest = parts.pop() ?? "";
    if (rest.length > maxEventLength) throw new RangeError("an event does not end");
    return parts.flatMap(readEvent);
  };
}

function readEvent(text: string): readonly StreamEvent[] {
  let event = "message";
  const data: string[] = [];
  for (const line of text.split("\n")) {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") event = value;
    if (name === "data") data.push(value);
  }
  return data.length > 0 ? [{ event, data: data.join("\n") }] : [];
}
