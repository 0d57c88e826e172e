import type { IncomingHttpHeaders } from "node:http";
import { EspalierError, type Scheduler } from "@espalier/core";
import type { Warn } from "./hooks.ts";

/** Longest wait for `auth`, in milliseconds. */
export const authTimeoutMs = 5_000;
/** Longest tenant name that `auth` may return. */
const maxNameLength = 128;

/** The head of a request, before its body is read. */
export interface AuthRequest {
  readonly method: string;
  /** The path with the query. */
  readonly url: string;
  /** By lower-case name. */
  readonly headers: Readonly<IncomingHttpHeaders>;
}

/** Whom a request belongs to; its name takes the place of the name of an API key. */
export interface Identity {
  /** 1 to 128 characters. */
  readonly name: string;
}

/**
 * Decides in place of `api-keys` who may ask. The client gets 401 where it returns undefined, and 503 where it throws or
 * takes longer than 5 s: nobody passes unchecked.
 */
export type Auth = (request: AuthRequest) => Identity | undefined | Promise<Identity | undefined>;

/** @returns the name; rejects with `invalid_api_key` or `auth_failed` */
export type CheckIdentity = (request: AuthRequest) => Promise<string>;

export function createIdentityCheck(
  auth: Auth,
  { scheduler, warn }: { scheduler: Scheduler; warn: Warn },
): CheckIdentity {
  return async ({ method, url, headers }) => {
    let cancel = (): void => {};
    const late = new Promise<never>((_, reject) => {
      cancel = scheduler.after(authTimeoutMs, () => reject(new Error(`no answer within ${authTimeoutMs} ms`)));
    });
    try {
      const identity = await Promise.race([
        new Promise<Awaited<ReturnType<Auth>>>((resolve) => resolve(auth({ method, url, headers }))),
        late,
      ]);
      if (identity === undefined) throw new EspalierError("invalid_api_key");
      const { name } = identity;
      if (typeof name === "string" && name.length > 0 && name.length <= maxNameLength) return name;
      throw new TypeError(`the name must be text of 1 to ${maxNameLength} characters`);
    } catch (error) {
      if (error instanceof EspalierError && error.code === "invalid_api_key") throw error;
      warn("auth", "auth failed; request rejected", { error });
      throw new EspalierError("auth_failed");
    } finally {
      cancel();
    }
  };
}
