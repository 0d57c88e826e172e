import { optionalInteger, optionalString } from "../../http/body-fields.ts";
import { ApiError } from "../../http/exchange.ts";
import type { Exporter, Importer, Leg, LegInput } from "../leg.ts";
import { offerOf } from "../leg.ts";

/** SGLang's own default (`--disaggregation-bootstrap-port`). */
const defaultBootstrapPort = 8_998;

/**
 * SGLang's disaggregation (`disaggregation/prefill.py`, `decode.py`): both engines get the request at once, under one
 * `bootstrap_room`. The prefill engine begins when the decode engine has called, and answers when all blocks were fetched.
 * Neither computes a request alone. An engine without a role ignores `bootstrap_room`.
 */
export function sglangLeg(input: LegInput): Leg {
  const { parts, body } = input;
  const { role } = parts.transfer;
  if (role === "both") return {};
  const room = roomOf(body.bootstrap_room);
  if (room === undefined) {
    throw new ApiError(400, "Invalid request: Disaggregated request received without bootstrap room id.");
  }
  if (role === "decode") return { importer: sglangImporter(input, room) };
  return { exporter: sglangExporter(input, room), onlyPrompt: true };
}

/** Largest bootstrap room: the largest signed 64-bit integer. */
const maxRoom = 2n ** 63n - 1n;

/**
 * The `bootstrap_room` of a request. Numbers beyond JavaScript's safe integers arrive as text.
 *
 * @throws ApiError 400 when it is not a whole number from 0 to 2^63 - 1
 */
function roomOf(value: unknown): string | undefined {
  if (value === undefined || value === null) return undefined;
  const digits = typeof value === "number" || typeof value === "string" ? String(value) : "";
  if (/^\d{1,19}$/.test(digits) && BigInt(digits) <= maxRoom) return BigInt(digits).toString();
  throw new ApiError(400, "bootstrap_room is not a whole number from 0 to 2^63 - 1", "bootstrap_room");
}

function sglangExporter(input: LegInput, room: string): Exporter {
  const { parts } = input;
  const exported = begin(input, room);
  const failed = (what: string, error: unknown): ApiError =>
    new ApiError(500, `Prefill ${what} failed for request rank=0 ${room}: ${messageOf(error)}`);
  return {
    pins: true,
    async ready() {
      await exported.joined.catch((error: unknown) => {
        throw failed("bootstrap", error);
      });
    },
    async computed(report) {
      exported.offer(offerOf(input, report));
      await exported.fetched.catch((error: unknown) => {
        throw failed("transfer", error);
      });
      return {};
    },
    cancelled: () => exported.cancel(`the prefill request was cancelled on ${parts.engineId()}`),
  };
}

function begin({ parts }: LegInput, room: string) {
  try {
    return parts.exports.begin(room, "drop");
  } catch (error) {
    throw new ApiError(400, messageOf(error), "bootstrap_room");
  }
}

function sglangImporter({ parts, body }: LegInput, room: string): Importer {
  const host = optionalString(body, "bootstrap_host");
  const port = optionalInteger(body, "bootstrap_port", 1, 65_535) ?? defaultBootstrapPort;
  if (host === undefined) throw new ApiError(400, "a request with a room needs a bootstrap_host", "bootstrap_host");
  return {
    open: (signal) => parts.links.open({ host, port, ticket: room, engineId: undefined, waits: true }, signal),
    failure: (reason) => new ApiError(500, `Decode transfer failed for request rank=0 ${room}: ${reason}`),
  };
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
