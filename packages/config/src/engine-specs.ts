import { createHash } from "node:crypto";
import { asEngineId, type EngineSpec } from "@espalier/common";
import type { Path, Problem } from "./problems.ts";
import type { ConfigTree } from "./schema/config-schema.ts";

type EngineTree = ConfigTree["engines"][number];

/** Turns a checked list of engines into specs: URLs in their plain form, ids of their own. */
export function compileEngines(engines: readonly EngineTree[]): EngineSpec[] {
  return engines.map(({ "kv-events": events, "kv-transfer": transfer, ...engine }) => ({
    id: asEngineId(idOf(engine)),
    url: plainUrl(engine.url) ?? engine.url,
    models: engine.models,
    role: engine.role,
    weight: engine.weight,
    labels: engine.labels,
    ...(engine.ranks === 1 ? {} : { ranks: engine.ranks }),
    ...(events === undefined
      ? {}
      : { kvEvents: { endpoint: events.endpoint, replayEndpoint: events.replay, topic: events.topic } }),
    ...(transfer === undefined
      ? {}
      : { kvTransfer: { protocol: transfer.protocol, host: transfer.host, port: transfer.port } }),
  }));
}

/** What a schema cannot say of a list of engines: every URL parses, and no id or URL stands twice. */
export function checkEngines(engines: readonly EngineTree[], path: Path): Problem[] {
  const problems: Problem[] = [];
  const firstWithId = new Map<string, number>();
  const firstWithUrl = new Map<string, number>();
  for (const [at, engine] of engines.entries()) {
    const url = plainUrl(engine.url);
    if (url === undefined) {
      problems.push({ path: [...path, at, "url"], message: `${JSON.stringify(engine.url)} is not a URL` });
      continue;
    }
    const sameUrl = firstWithUrl.get(url);
    const sameId = firstWithId.get(idOf(engine));
    if (sameUrl !== undefined) {
      problems.push({ path: [...path, at, "url"], message: `${url} is the URL of engine ${sameUrl} as well` });
    } else if (sameId !== undefined) {
      problems.push({ path: [...path, at, "id"], message: `${idOf(engine)} is the id of engine ${sameId} as well` });
    }
    firstWithUrl.set(url, sameUrl ?? at);
    firstWithId.set(idOf(engine), sameId ?? at);
  }
  return problems;
}

/** An id has at most as many characters as one that is written: routers name engines to each other by them. */
const maxIdLength = 128;

/**
 * Host and port of the URL, and its path if it has one, unless an id was written. What is too long ends in a checksum of
 * the whole.
 */
function idOf({ id, url }: EngineTree): string {
  if (id !== undefined) return id;
  const whole = (plainUrl(url) ?? url).replace(/^https?:\/\//, "");
  if (whole.length <= maxIdLength) return whole;
  const checksum = createHash("sha256").update(whole).digest("hex").slice(0, 16);
  return `${whole.slice(0, maxIdLength - checksum.length - 1)}~${checksum}`;
}

/** Host in lower case, no default port, no slash at the end; undefined for what is no URL. */
function plainUrl(written: string): string | undefined {
  if (!URL.canParse(written)) return undefined;
  const { protocol, host, pathname } = new URL(written);
  return `${protocol}//${host}${pathname.replace(/\/+$/, "")}`;
}
