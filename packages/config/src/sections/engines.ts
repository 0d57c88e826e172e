import { createHash } from "node:crypto";
import { asEngineId, type EngineSpec, kvTransferProtocols } from "@espalier/common";
import { Type } from "typebox";
import { type Path, type Problem, problemsError } from "../problems.ts";
import { isSection, readTree } from "../read-tree.ts";
import type { ConfigTree } from "../schema.ts";
import { choice, duration, filePath, flag, integer, list, map, number, section, text } from "../schema-builders.ts";
import { parseYaml } from "../yaml-document.ts";
import { zmqEndpoint } from "./prefix-cache.ts";

const urlPath = (description: string, standard: string) =>
  text({
    description,
    default: standard,
    pattern: '^/[!-"$-~]*$',
    expected: "a path that starts with /",
  });

export const engines = list(
  section(
    "One engine. A plain text stands for the URL.",
    {
      url: text({
        description: "`http://host:port` or `https://host:port`, with an optional path prefix.",
        maxLength: 2_048,
        pattern: "^https?://[^\\s/?#@\\\\]+(/[^\\s?#\\\\]*)?$",
        expected: "an http:// or https:// URL without credentials, query or fragment",
      }),
      id: Type.Optional(
        text({
          description: "Unique name; host and port of the URL unless given.",
          maxLength: 128,
          pattern: "^[\\x21-\\x7e]+$",
          expected: "a name of at most 128 visible ASCII characters",
        }),
      ),
      models: list(text({ description: "A model's name.", maxLength: 256 }), {
        description: "Models it serves; empty to ask the engine.",
        maxItems: 1_000,
      }),
      role: choice(["both", "prefill", "decode"], { description: "What it does for a request.", default: "both" }),
      weight: number({
        description: "Relative share of traffic.",
        minimum: 0.001,
        maximum: 1_000_000,
        default: 1,
      }),
      ranks: integer({
        description: "Data-parallel ranks of it that requests are sent to one by one, by `x-data-parallel-rank`.",
        default: 1,
        minimum: 1,
        maximum: 64,
      }),
      "kv-events": Type.Optional(
        section(
          "Where it publishes its KV events. A plain text stands for the endpoint.",
          {
            endpoint: zmqEndpoint("Of rank 0; those of the other ranks are on the ports after it.", {
              wildcard: false,
            }),
            replay: Type.Optional(
              zmqEndpoint("Where missed events can be asked for, of rank 0 as well.", { wildcard: false }),
            ),
            topic: text({ description: "Only events with a topic that starts so.", minLength: 0, default: "" }),
          },
          { shorthand: "endpoint" },
        ),
      ),
      "kv-transfer": Type.Optional(
        section(
          "How it hands KV blocks over, for requests that two engines serve together. A plain text stands for the protocol.",
          {
            protocol: choice(kvTransferProtocols, { description: "The same at both sides.", default: "nixl" }),
            host: Type.Optional(
              text({
                description: "Where other engines reach its side of the transfer; the URL's host unless given.",
                maxLength: 253,
                pattern: "^[A-Za-z0-9.:_-]+$",
                expected: "a host name or an IP address",
              }),
            ),
            port: Type.Optional(
              integer({
                description:
                  "Of its bootstrap server (`sglang`, `mooncake`: 8998 unless given) or of its transfers (`p2p-nccl`: 14579).",
                minimum: 1,
                maximum: 65_535,
              }),
            ),
          },
          { shorthand: "protocol" },
        ),
      ),
      labels: map(text({ description: "A label's value.", minLength: 0, maxLength: 256 }), {
        description: "Free-form labels.",
        maxProperties: 64,
      }),
    },
    { shorthand: "url" },
  ),
  { description: "The engines, each as a URL or a section.", maxItems: 10_000, flag: "engine" },
);

export const enginesFile = filePath(
  "YAML or JSON file with a list like `engines`; watched, and read again when it changes.",
);

export const engineTls = section("TLS to engines whose URL is `https`.", {
  "ca-file": Type.Optional(filePath("Certificates in PEM form to trust in place of the system's.")),
  "cert-file": Type.Optional(filePath("The router's own certificate in PEM form, for engines that ask for one.")),
  "key-file": Type.Optional(filePath("Private key of that certificate in PEM form.")),
  verify: flag({ description: "Check the engines' certificates.", default: true }),
});

export const health = section("How it is found out whether an engine is up.", {
  path: urlPath("Path that is asked; a 2xx answer is a good one.", "/health"),
  interval: duration({ description: "Between two checks.", default: "2s", minimum: "100ms", maximum: "10m" }),
  timeout: duration({ description: "For the answer.", default: "1s", minimum: "10ms", maximum: "1m" }),
  "down-after": integer({
    description: "Failed checks in a row after which an engine is down.",
    default: 3,
    minimum: 1,
    maximum: 100,
  }),
  "up-after": integer({
    description: "Good checks in a row after which it is up again.",
    default: 2,
    minimum: 1,
    maximum: 100,
  }),
  "panic-threshold": number({
    description:
      "Share of a model's engines that have to be up; with fewer, those that are down are tried, one request at a time until they answer. 0: never.",
    default: 0.5,
    minimum: 0,
    maximum: 1,
  }),
});

export const scrape = section("How the engines' own load figures are read.", {
  path: urlPath("Path of the engine's Prometheus metrics.", "/metrics"),
  interval: Type.Optional(
    duration({
      description:
        "Between two reads. 1s unless given; 50ms for engines of models whose policy is `epp_weighted`, which is made for that.",
      minimum: "50ms",
      maximum: "10m",
    }),
  ),
  timeout: duration({ description: "For the answer.", default: "1s", minimum: "10ms", maximum: "1m" }),
});

export const breaker = section("When an engine that fails requests is left alone for a while.", {
  "consecutive-failures": integer({
    description: "Failed requests in a row that open the breaker.",
    default: 5,
    minimum: 1,
    maximum: 1_000,
  }),
  "failure-share": number({
    description: "Share of failed requests in the window that opens it.",
    default: 0.5,
    minimum: 0.01,
    maximum: 1,
  }),
  "window-requests": integer({
    description: "Requests that the window needs before the share counts.",
    default: 20,
    minimum: 1,
    maximum: 100_000,
  }),
  window: duration({ description: "Length of the window.", default: "10s", minimum: "1s", maximum: "10m" }),
  open: duration({
    description: "How long it stays open the first time; twice as long each time after.",
    default: "2s",
    minimum: "100ms",
    maximum: "10m",
  }),
  "max-open": duration({
    description: "How long at most; `open` where that is longer, unless set.",
    default: "30s",
    minimum: "100ms",
    maximum: "1h",
  }),
  "successes-to-close": integer({
    description: "Successful trial requests that close it.",
    default: 2,
    minimum: 1,
    maximum: 100,
  }),
  "max-ejected-share": number({
    description: "Share of a model's engines that may be left alone; while more would be, breakers do not count.",
    default: 0.5,
    minimum: 0,
    maximum: 1,
  }),
});

export const retry = section("When a request is sent to another engine. It never is after a byte of the answer.", {
  "budget-ratio": number({
    description: "Retries per request, over the last ten seconds.",
    default: 0.2,
    minimum: 0,
    maximum: 1,
  }),
  "budget-minimum": integer({
    description: "Retries that are always allowed, over the last ten seconds.",
    default: 50,
    minimum: 0,
    maximum: 1_000,
  }),
  statuses: list(integer({ description: "An HTTP status.", minimum: 500, maximum: 599 }), {
    description: "Answers of an engine that lead to a retry.",
    maxItems: 100,
    default: [502, 503, 504],
  }),
});

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

/**
 * Reads a file of engines: a list as under `engines` in the configuration, or a section with that one key. YAML or
 * JSON; variables are not filled in.
 *
 * @param path names the file in messages
 * @throws EspalierError `config_invalid` with every problem on a line of its own
 */
export function parseEnginesFile(text: string, path: string): readonly EngineSpec[] {
  const { value, locate } = parseYaml(text, path);
  const isWrapped = isSection(value) && Object.keys(value).every((key) => key === "engines");
  const base = isWrapped ? ["engines"] : [];
  const problems: Problem[] = [];
  const written = isWrapped ? value.engines : value;
  const tree = readTree(engines, written, base, {
    problems,
    writtenText: new Map(),
    unfilled: new Set(),
  }) as ConfigTree["engines"];
  if (problems.length === 0) problems.push(...checkEngines(tree, base));
  if (problems.length > 0) throw problemsError(problems, locate);
  return compileEngines(tree);
}
