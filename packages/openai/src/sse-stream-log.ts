import { type EventRole, eventUsage } from "./sse-event.ts";
import { joinUsage, type Usage } from "./usage.ts";

/** What the events of one stream have said so far. */
export interface SseStreamLog {
  noteRole(role: EventRole): void;
  /** Keeps an event with token counts. Only the first and the last are kept, and parsed only when asked for. */
  noteReport(event: Buffer): void;
  usage(): Usage | undefined;
  sawDone(): boolean;
  endedProperly(): boolean;
  tokensSeen(): number;
}

export function createSseStreamLog(): SseStreamLog {
  let events = 0;
  let done = false;
  let ended = false;
  let firstReport: Buffer | undefined;
  let lastReport: Buffer | undefined;
  return {
    noteRole(role) {
      if (role === "data" || role === "last") events++;
      if (role === "done") done = true;
      if (role === "done" || role === "last") ended = true;
    },
    noteReport(event) {
      firstReport ??= event;
      lastReport = event;
    },
    usage: () => joinUsage(eventUsage(firstReport), eventUsage(lastReport)),
    sawDone: () => done,
    endedProperly: () => ended,
    tokensSeen: () => events,
  };
}
