import { EspalierError } from "@espalier/common";
import { type Endpoint, endpoints } from "@espalier/openai";
import { type LargeBodies, largeBodyBytes } from "../large-bodies/large-bodies.ts";

/** What tells a request's endpoint where its path does not. */
interface Signs {
  /** An endpoint's id or path, as the caller names it. */
  readonly named: string | undefined;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: Buffer;
}

/** The first whose field is in the body; `messages` is told apart before. */
const signs: readonly (readonly [field: string, id: Endpoint["id"]])[] = [
  ["prompt", "completions"],
  ["prompt_embeds", "completions"],
  ["input", "responses"],
  ["text", "generate"],
  ["input_ids", "generate"],
];

const tellingFields = ["messages", "system", ...signs.map(([field]) => field)];

/**
 * The endpoint that a request is for: the one that is named, else the one whose bodies look like this. A body with
 * `messages` is a chat, of Anthropic's kind where it has `system` beside them or its client says so.
 *
 * @param largeBodies reads those of which the event loop should not
 * @throws EspalierError `invalid_value` for a name of none, and where the body does not tell
 */
export async function endpointOf(
  { named, headers, body }: Signs,
  largeBodies: Pick<LargeBodies, "readFields">,
): Promise<Endpoint> {
  if (named !== undefined) {
    const found = endpoints.find(({ id, path }) => id === named || path === named);
    if (found) return found;
    const known = [...new Set(endpoints.map(({ id }) => id))].join(", ");
    throw new EspalierError("invalid_value", `There is no endpoint ${JSON.stringify(named)}; there are ${known}.`, {
      param: "endpoint",
    });
  }
  const fields = body.length > largeBodyBytes ? await largeBodies.readFields(body, tellingFields) : fieldsOf(body);
  const isAnthropic = fields.includes("system") || headers["anthropic-version"] !== undefined;
  const id = fields.includes("messages")
    ? isAnthropic
      ? "messages"
      : "chat"
    : signs.find(([field]) => fields.includes(field))?.[1];
  const endpoint = endpoints.find((one) => one.id === id);
  if (endpoint) return endpoint;
  throw new EspalierError("invalid_value", "The body does not tell which endpoint it is for; name one in `endpoint`.", {
    param: "endpoint",
  });
}

/** The body is read again, and refused where it has to be, once the endpoint is known. */
function fieldsOf(body: Buffer): readonly string[] {
  try {
    const parsed: unknown = JSON.parse(body.toString("utf8"));
    return typeof parsed === "object" && parsed !== null ? Object.keys(parsed) : [];
  } catch {
    throw new EspalierError("invalid_json");
  }
}
