import {
  type ErrorCode,
  EspalierError,
  errorCatalogue,
  type HttpClient,
  systemClock,
  systemScheduler,
} from "@espalier/core";
import { createProxy } from "@espalier/engines";
import type { Engine, RouterStatus } from "@espalier/server";
import { type Command, Option } from "commander";

/** The address of a running router's admin listener, and its key. */
export interface AdminOptions {
  readonly admin: string;
  readonly key?: string;
  readonly json?: boolean;
  /** The flag that gave the address, if it is not `--admin`. */
  readonly flag?: string;
}

export function addAdminOptions(command: Command): Command {
  return command
    .addOption(
      new Option("--admin <url>", "admin address of the router")
        .default("http://127.0.0.1:9090")
        .env("ESPALIER_ADMIN_URL"),
    )
    .addOption(new Option("--key <key>", "admin key").env("ESPALIER_ADMIN_KEY"))
    .option("--json", "print JSON");
}

/** @throws EspalierError as `askAdmin` */
export const askStatus = (options: AdminOptions): Promise<RouterStatus> => askAdmin(options, "/admin/status");

/** The engines of a router. @throws EspalierError as `askAdmin` */
export async function askEngines(options: AdminOptions): Promise<readonly Engine[]> {
  return (await askAdmin<{ readonly engines: readonly Engine[] }>(options, "/admin/engines")).engines;
}

/** JSON text sent with the request; empty for none. */
interface AdminBody {
  readonly method: "PATCH" | "POST" | "DELETE";
  readonly json: string;
  readonly headers?: Readonly<Record<string, string>>;
}

const timeoutMs = 5_000;
/** A router uses this status, like 200, to answer that it tried something and failed. */
const outcomeStatus = 422;
/** Largest answer of a router's admin API. */
const maxBytes = 16_777_216;

/**
 * Sends a request to a running router.
 *
 * @throws EspalierError when it cannot be reached or refuses; its message says what to do
 */
export async function askAdmin<Answer>(
  { admin, key, flag = "--admin" }: AdminOptions,
  path: string,
  sent?: AdminBody,
): Promise<Answer> {
  try {
    const { status, body } = await withHttpClient((http) =>
      http({
        url: `${admin.replace(/\/$/, "")}${path}`,
        ...(sent ? { method: sent.method } : {}),
        ...(sent?.json ? { body: sent.json } : {}),
        headers: {
          ...(sent?.json ? { ...sent.headers, "content-type": "application/json" } : {}),
          ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
        },
        timeoutMs,
        maxBytes,
      }),
    );
    if (status === 204) return undefined as Answer;
    if (status === 200 || status === 201 || status === outcomeStatus) return JSON.parse(body) as Answer;
    throw refusalOf(admin, status, body);
  } catch (error) {
    if (!(error instanceof EspalierError)) throw error;
    if (error.code === "upstream_connect_failed") {
      throw errorOfRouter(error.code, `No router answers at ${admin}. Start it, or set ${flag} to its address.`);
    }
    if (error.code === "upstream_timeout") {
      throw errorOfRouter(error.code, `The router at ${admin} did not answer within ${timeoutMs / 1_000} s.`);
    }
    throw error;
  }
}

/** The error of an answer that refuses. */
export function refusalOf(admin: string, status: number, body: string): EspalierError {
  const { code, message } = readError(body);
  return errorOfRouter(code, `The router at ${admin} answered ${status}: ${message}`);
}

/** The catalogue advises those who wait for an engine, and clients; here somebody waits for a router. */
const actions: Partial<Readonly<Record<ErrorCode, string>>> = {
  upstream_connect_failed: "Run `espalier serve`, or `espalier doctor` to find the problem.",
  upstream_timeout: "It is stopped or overloaded: check its log and retry.",
  upstream_protocol_error: "Check that the address is a router's admin listener.",
  engine_not_found: "List the engines with `espalier engines`.",
  invalid_api_key: "Pass the router's admin key with --key or ESPALIER_ADMIN_KEY.",
};

function errorOfRouter(code: ErrorCode, message: string): EspalierError {
  const action = actions[code];
  return new EspalierError(code, message, action === undefined ? {} : { action });
}

/** The error in the router's own terms; another program may listen at the address. */
function readError(body: string): { readonly code: ErrorCode; readonly message: string } {
  try {
    const { error } = JSON.parse(body) as { error: { code: string; message: string } };
    const code = Object.hasOwn(errorCatalogue, error.code) ? (error.code as ErrorCode) : "upstream_protocol_error";
    return { code, message: error.message };
  } catch {
    return { code: "upstream_protocol_error", message: body.slice(0, 200) };
  }
}

/** Lets `use` send requests over HTTP, and closes every connection afterwards, even after an error. */
export async function withHttpClient<Result>(use: (http: HttpClient) => Promise<Result>): Promise<Result> {
  const proxy = createProxy({ clock: systemClock, scheduler: systemScheduler });
  await proxy.start();
  try {
    return await use(proxy.httpClient);
  } finally {
    await proxy.stop();
  }
}
