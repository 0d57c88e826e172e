import { asEngineId, type EngineSpec } from "@espalier/common";
import type { Path, Problem } from "./problems.ts";
import type { ConfigTree } from "./schema/config-schema.ts";

type EngineTree = ConfigTree["engines"][number];

/** Turns a checked list of engines into specs: URLs in their plain form, ids of their own. */
export function compileEngines(engines: readonly EngineTree[]): EngineSpec[] {
  return engines.map(({ "kv-events": events, ...engine }) => ({
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

/** Host and port of the URL, and its path if it has one, unless an id was written. */
function idOf({ id, url }: EngineTree): string {
  return id ?? (plainUrl(url) ?? url).replace(/^https?:\/\//, "");
}

/** Host in lower case, no default port, no slash at the end; undefined for what is no URL. */
function plainUrl(written: string): string | undefined {
  if (!URL.canParse(written)) return undefined;
  const { protocol, host, pathname } = new URL(written);
  return `${protocol}//${host}${pathname.replace(/\/+$/, "")}`;
}
