import { type JsonObject, optionalInteger } from "../api/body-fields.ts";
import { missingField, wrongField } from "../http/api-error.ts";

/**
 * Something that shall go wrong with KV events. Counts are messages, `delayMs` is real milliseconds; a fault without an
 * end lasts until it is cleared.
 */
export type EventFault =
  /** Uses up numbers without messages: a hole that no replay can fill. */
  | { readonly kind: "gap"; readonly count: number }
  /** Publishes messages that cannot be decoded. */
  | { readonly kind: "junk"; readonly count: number }
  /** Sends each of the next messages twice. */
  | { readonly kind: "duplicate"; readonly count: number }
  /** Sends the next message after the one that follows it, as many times over. */
  | { readonly kind: "disorder"; readonly count: number }
  /** Numbers and keeps messages, but does not send them. */
  | { readonly kind: "silence"; readonly count: number | undefined; readonly delayMs: number | undefined }
  /** Does not answer who asks for a replay. */
  | { readonly kind: "replay-silent"; readonly delayMs: number | undefined }
  /** Forgets all messages but the newest. */
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

/** Messages that one fault may be about. */
const maxCount = 1_000_000;
/** Messages of junk at a time; each is published at once. */
const maxJunk = 1_000;
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
