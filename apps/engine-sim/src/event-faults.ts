import type { Cancel, JsonObject, Scheduler } from "@espalier/core";
import type { Delivery } from "@espalier/engine-model/kv-events";
import { optionalInteger } from "./http/body-fields.ts";
import { ApiError, missingField, wrongField } from "./http/exchange.ts";

/**
 * An injected fault of KV events. Counts are messages, `delayMs` is real milliseconds; a fault without either lasts until it
 * is cleared.
 */
export type EventFault =
  /** Skips sequence numbers: a gap that no replay can fill. */
  | { readonly kind: "gap"; readonly count: number }
  /** Publishes messages that cannot be decoded. */
  | { readonly kind: "junk"; readonly count: number }
  /** Sends each of the next messages twice. */
  | { readonly kind: "duplicate"; readonly count: number }
  /** Swaps the next message with the one after it, `count` times. */
  | { readonly kind: "disorder"; readonly count: number }
  /** Numbers and keeps messages, without sending them. */
  | { readonly kind: "silence"; readonly count: number | undefined; readonly delayMs: number | undefined }
  /** Does not answer replay requests. */
  | { readonly kind: "replay-silent"; readonly delayMs: number | undefined }
  /** Drops all kept messages but the newest. */
  | { readonly kind: "replay-truncated"; readonly keep: number };

const eventFaultKinds = [
  "gap",
  "junk",
  "duplicate",
  "disorder",
  "silence",
  "replay-silent",
  "replay-truncated",
] as const satisfies readonly EventFault["kind"][];

/** Largest count of a fault. */
const maxCount = 1_000_000;
/** Largest count of `junk`, whose messages are published at once. */
const maxJunk = 1_000;
/** Longest delay of a message. */
const maxDelayMs = 600_000;

/**
 * A fault from the body of `POST /sim/kv-events`.
 *
 * @throws ApiError 400 naming the field that is missing or wrong
 */
export function parseEventFault(body: JsonObject): EventFault {
  const kind = eventFaultKinds.find((known) => known === body.kind);
  if (body.kind === undefined) throw missingField("kind");
  if (!kind) throw wrongField("kind", `one of ${eventFaultKinds.join(", ")}`);
  const delayMs = optionalInteger(body, "delayMs", 0, maxDelayMs);
  switch (kind) {
    case "silence":
      return { kind, count: optionalInteger(body, "count", 1, maxCount), delayMs };
    case "replay-silent":
      return { kind, delayMs };
    case "replay-truncated":
      return { kind, keep: optionalInteger(body, "keep", 0, maxCount) ?? 1 };
    default:
      return { kind, count: optionalInteger(body, "count", 1, kind === "junk" ? maxJunk : maxCount) ?? 1 };
  }
}

/** Faults that apply to coming messages. */
export type MessageFault = Extract<EventFault, { kind: "duplicate" | "disorder" | "silence" }>;

/** Active faults of messages. */
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

/** The active faults of messages. The first one applies until it is used up. */
export function createMessageFaults(scheduler: Scheduler) {
  const entries = new Set<Entry>();
  /** Whether the last message is sent after the next one. */
  let isSwapping = false;

  const remove = (entry: Entry): void => {
    entry.cancel?.();
    entries.delete(entry);
  };
  return {
    /** @throws ApiError 400 when `maxMessageFaults` are active */
    add(fault: MessageFault): void {
      if (entries.size >= maxMessageFaults) throw new ApiError(400, `at most ${maxMessageFaults} faults at once`);
      const delayMs = fault.kind === "silence" ? fault.delayMs : undefined;
      const cancel = delayMs === undefined ? undefined : scheduler.after(delayMs, () => void entries.delete(entry));
      const entry: Entry = { fault, cancel };
      entries.add(entry);
    },
    clear(): void {
      for (const entry of entries) remove(entry);
    },
    list: (): readonly MessageFault[] => Array.from(entries, ({ fault }) => fault),
    /** The delivery of the next message; counts the fault down. */
    take(): Delivery {
      if (isSwapping) {
        isSwapping = false;
        return "sent";
      }
      for (const entry of entries) {
        const { kind, count } = entry.fault;
        if (count === 1) remove(entry);
        else if (count !== undefined) entry.fault = { ...entry.fault, count: count - 1 };
        isSwapping = kind === "disorder";
        return deliveries[kind];
      }
      return "sent";
    },
  };
}
