import type { Cancel, Scheduler } from "@espalier/common";
import type { Delivery } from "@espalier/kv-events";
import { ApiError } from "../http/api-error.ts";
import type { EventFault } from "./event-faults.ts";

/** Faults that wait for the messages they are about. */
export type MessageFault = Extract<EventFault, { kind: "duplicate" | "disorder" | "silence" }>;

/** Faults of messages that are on. The first one hits until it is used up. */
export interface MessageFaults {
  /** @throws ApiError 400 when `maxMessageFaults` are on already */
  add(fault: MessageFault): void;
  clear(): void;
  list(): readonly MessageFault[];
  /** How the next message leaves, counted down. */
  take(): Delivery;
}

const maxMessageFaults = 16;

const deliveries: Readonly<Record<MessageFault["kind"], Delivery>> = {
  duplicate: "twice",
  disorder: "late",
  silence: "lost",
};

interface Entry {
  fault: MessageFault;
  readonly cancel: Cancel | undefined;
}

export function createMessageFaults(scheduler: Scheduler): MessageFaults {
  const entries = new Set<Entry>();
  /** Whether the last message waits for one to overtake it. */
  let holding = false;

  const remove = (entry: Entry): void => {
    entry.cancel?.();
    entries.delete(entry);
  };
  return {
    add(fault) {
      if (entries.size >= maxMessageFaults) throw new ApiError(400, `at most ${maxMessageFaults} faults at once`);
      const delayMs = fault.kind === "silence" ? fault.delayMs : undefined;
      const cancel = delayMs === undefined ? undefined : scheduler.after(delayMs, () => void entries.delete(entry));
      const entry: Entry = { fault, cancel };
      entries.add(entry);
    },
    clear() {
      for (const entry of entries) remove(entry);
    },
    list: () => Array.from(entries, ({ fault }) => fault),
    take() {
      if (holding) {
        holding = false;
        return "sent";
      }
      for (const entry of entries) {
        const { kind, count } = entry.fault;
        if (count === 1) remove(entry);
        else if (count !== undefined) entry.fault = { ...entry.fault, count: count - 1 };
        holding = kind === "disorder";
        return deliveries[kind];
      }
      return "sent";
    },
  };
}
