import { createHash } from "node:crypto";
import { asEngineId, type EngineSpec, isJsonObject, kvPullProtocols, kvTransferProtocols } from "@espalier/core";
import { Type } from "typebox";
import { type Path, type Problem, problemsError } from "../problems.ts";
import { readTree } from "../read-tree.ts";
import type { ConfigTree } from "../schema.ts";
import {
  choice,
  duration,
  filePath,
  flag,
  integer,
  list,
  map,
  number,
  section,
  size,
  text,
} from "../schema-builders.ts";
import { compiled, settingsOf } from "../settings-of.ts";
import { parseYaml } from "../yaml-document.ts";
import { zmqEndpoint } from "./prefix-cache.ts";

const urlPath = (description: string, standard: string) =>
  text({
    description,
    default: standard,
    pattern: '^/[!-"$-~]*$',
    expected: "a path that starts with /",
  });

/** @param whose the engine or engines, in the genitive */
export const firstRank = (whose: string) =>
  Type.Optional(
    integer({
      description: `Number of ${whose} first rank, as its \`--data-parallel-start-rank\`: with vLLM's \`--data-parallel-hybrid-lb\` a second node of four ranks begins at 4. Without it the engine's metrics show it.`,
      minimum: 0,
      maximum: 1_023,
    }),
  );

export const engineRegion = (description: string) =>
  text({
    description,
    maxLength: 128,
    pattern: "^[A-Za-z0-9._-]+$",
    expected: "1 to 128 letters, digits, dots, dashes and underscores",
  });

const engine = section(
  "An engine. A plain string is its `url`.",
  {
    url: text({
      description:
        "Base URL of the engine: `http://host:port` or `https://host:port`, with an optional path prefix. `host:port` alone is `http://`.",
      maxLength: 2_048,
      pattern: "^(https?://[^\\s/?#@\\\\]+|([A-Za-z0-9._-]+|\\[[0-9a-fA-F:.]+\\]):\\d{1,5})(/[^\\s?#\\\\]*)?$",
      expected: "an http:// or https:// URL without credentials, query or fragment",
    }),
    id: Type.Optional(
      text({
        description: "Unique name of the engine. Default: host and port of its URL.",
        maxLength: 128,
        pattern: "^[\\x21-\\x7e]+$",
        expected: "a name of at most 128 visible ASCII characters",
      }),
    ),
    models: list(text({ description: "Name of a model.", maxLength: 256 }), {
      description: "Models that the engine serves. With an empty list, the router asks the engine.",
      maxItems: 1_000,
    }),
    role: choice(["both", "prefill", "decode"], {
      description: "Which part of a request the engine computes: `prefill`, `decode`, or `both`.",
      default: "both",
    }),
    weight: number({
      description: "Relative share of traffic for the engine.",
      minimum: 0.001,
      maximum: 1_000_000,
      default: 1,
    }),
    region: Type.Optional(engineRegion("Region of the engine, by the names of the routers' `mesh.region`.")),
    ranks: integer({
      description:
        "Number of data-parallel ranks of the engine. The router picks a rank per request and names it in `x-data-parallel-rank`.",
      default: 1,
      minimum: 1,
      maximum: 64,
    }),
    "first-rank": firstRank("the engine's"),
    "kv-events": Type.Optional(
      section(
        "KV event publisher of the engine. A plain string is the `endpoint`.",
        {
          endpoint: zmqEndpoint(
            "ZeroMQ endpoint where rank 0 publishes KV events. The other ranks use the ports after it.",
            {
              wildcard: false,
            },
          ),
          replay: Type.Optional(
            zmqEndpoint(
              "ZeroMQ endpoint where missed KV events of rank 0 are replayed. The other ranks use the ports after it.",
              { wildcard: false },
            ),
          ),
          topic: text({
            description: "Topic prefix: only KV events whose topic starts with it are read.",
            minLength: 0,
            default: "",
          }),
        },
        { shorthand: "endpoint" },
      ),
    ),
    "kv-transfer": Type.Optional(
      section(
        "How the engine transfers KV blocks to other engines, for requests split between a prefill and a decode engine. A plain string is the `protocol`.",
        {
          protocol: choice(kvTransferProtocols, {
            description: "Transfer protocol. Both engines of a split request must use the same one.",
            default: "nixl",
          }),
          host: Type.Optional(
            text({
              description:
                "Host at which other engines reach this engine's side of the transfer. Default: the host of its URL.",
              maxLength: 253,
              pattern: "^[A-Za-z0-9.:_-]+$",
              expected: "a host name or an IP address",
            }),
          ),
          port: Type.Optional(
            integer({
              description:
                "Port of the engine's bootstrap server (`sglang`, `mooncake`; default: 8998) or of its transfers (`p2p-nccl`; default: 14579).",
              minimum: 1,
              maximum: 65_535,
            }),
          ),
        },
        { shorthand: "protocol" },
      ),
    ),
    "kv-pull": Type.Optional(
      section(
        "Protocol by which the engine fetches KV blocks of prompts from other engines and serves its own. A plain string is the `protocol`.",
        {
          protocol: choice(kvPullProtocols, {
            description:
              "`p2p`: vLLM's P2P tier; `llm-d-sidecar`: the same behind llm-d's sidecar. Engines of one model must have the same block size and hash seed.",
            default: "p2p",
          }),
          host: Type.Optional(
            text({
              description:
                "Host at which other engines reach this engine's side channel. Default: the host of its URL.",
              maxLength: 253,
              pattern: "^[A-Za-z0-9.:_-]+$",
              expected: "a host name or an IP address",
            }),
          ),
          port: integer({
            description: "Port of rank 0's side channel. The other ranks use the ports after it.",
            default: 5_710,
            minimum: 1,
            maximum: 65_535,
          }),
        },
        { shorthand: "protocol" },
      ),
    ),
    labels: map(text({ description: "Value of a label.", minLength: 0, maxLength: 256 }), {
      description: "Free-form labels of the engine.",
      maxProperties: 64,
    }),
  },
  { shorthand: "url" },
);

/** URLs have one form, by which they are compared, and every engine has an id. */
export const engines = list(
  compiled(
    engine,
    (settings): EngineSpec => ({
      ...settings,
      id: asEngineId(idOf(settings)),
      url: normalizeUrl(settings.url) ?? settings.url,
    }),
  ),
  { description: "The engines to route to, each a URL or a section.", maxItems: 10_000, flag: "engine" },
);

export const enginesFile = filePath(
  "YAML or JSON file with a list of engines, in the form of `engines`. The router watches it and reloads it when it changes.",
);

export const engineTls = section("TLS for engines with an `https` URL.", {
  "ca-file": Type.Optional(
    filePath("PEM file with the certificate authorities to trust for engines, instead of the system's."),
  ),
  "cert-file": Type.Optional(
    filePath("PEM file with the router's own certificate, for engines that require a client certificate."),
  ),
  "key-file": Type.Optional(filePath("PEM file with the private key of `engine-tls.cert-file`.")),
  verify: flag({ description: "Verify the certificates of engines.", default: true }),
});

export const health = section("Health checks of engines.", {
  path: urlPath("Path of the health check on the engine. Any 2xx answer is healthy.", "/health"),
  interval: duration({
    description: "Time between two health checks of an engine.",
    default: "2s",
    minimum: "100ms",
    maximum: "10m",
  }),
  timeout: duration({
    description:
      "How long a health check waits for the answer. SGLang takes a second or two. A timeout does not count while the engine answers requests.",
    default: "3s",
    minimum: "10ms",
    maximum: "1m",
  }),
  "down-after": integer({
    description: "Failed health checks in a row after which an engine is down.",
    default: 3,
    minimum: 1,
    maximum: 100,
  }),
  "up-after": integer({
    description: "Successful health checks in a row after which an engine that was down is up again.",
    default: 2,
    minimum: 1,
    maximum: 100,
  }),
  "panic-threshold": number({
    description:
      "Panic threshold: share of a model's engines that must be up. Below it, engines that are down are tried as well, one request at a time until they answer. 0 turns this off.",
    default: 0.5,
    minimum: 0,
    maximum: 1,
  }),
});

export const scrape = section("How the router scrapes the engines' own metrics.", {
  path: urlPath("Path of the Prometheus metrics on the engine.", "/metrics"),
  interval: Type.Optional(
    duration({
      description:
        "Time between two scrapes of an engine's metrics. Default: 1s, or 50ms for engines that serve a model with the policy `epp_weighted`, which is designed for that rate. Beyond 1,000 ranks per second, the router scrapes less often.",
      minimum: "50ms",
      maximum: "10m",
    }),
  ),
  timeout: duration({
    description: "How long a metrics scrape waits for the answer.",
    default: "1s",
    minimum: "10ms",
    maximum: "1m",
  }),
});

export const breaker = section("Circuit breakers of engines.", {
  "consecutive-failures": integer({
    description: "Failed requests in a row that open an engine's circuit breaker.",
    default: 5,
    minimum: 1,
    maximum: 1_000,
  }),
  "failure-share": number({
    description: "Share of failed requests within `breaker.window` that opens an engine's circuit breaker.",
    default: 0.5,
    minimum: 0.01,
    maximum: 1,
  }),
  "window-requests": integer({
    description: "Requests that `breaker.window` must hold before `breaker.failure-share` applies.",
    default: 20,
    minimum: 1,
    maximum: 100_000,
  }),
  window: duration({
    description: "Length of the sliding window over which failed requests are counted.",
    default: "10s",
    minimum: "1s",
    maximum: "10m",
  }),
  open: duration({
    description:
      "How long a circuit breaker stays open the first time. Each further time doubles it, up to `breaker.max-open`.",
    default: "2s",
    minimum: "100ms",
    maximum: "10m",
  }),
  "max-open": duration({
    description:
      "Longest time a circuit breaker stays open. If it is not set and `breaker.open` is longer, that value is used.",
    default: "30s",
    minimum: "100ms",
    maximum: "1h",
  }),
  "successes-to-close": integer({
    description: "Successful trial requests after which a half-open circuit breaker closes.",
    default: 2,
    minimum: 1,
    maximum: 100,
  }),
  "max-ejected-share": number({
    description:
      "Maximum share of a model's engines with open circuit breakers. Beyond it, the breakers of that model are ignored.",
    default: 0.5,
    minimum: 0,
    maximum: 1,
  }),
});

export const resume = section(
  "Streams that another engine continues when theirs dies: the router sends it the request with the answer so far. [Requests](guides/requests.md#when-an-engine-dies) lists which.",
  {
    max: integer({
      description: "How often a stream is resumed. `0` turns it off. A resumed stream is charged to the retry budget.",
      default: 1,
      minimum: 0,
      maximum: 1,
    }),
    idle: flag({
      description: "Resume streams whose engine was silent for longer than `timeouts.idle`, too.",
      default: false,
    }),
    "max-bytes": size({
      description:
        "Largest size of a request and its answer, as the router keeps them. A larger stream is not resumed.",
      default: "1MiB",
      minimum: "1KiB",
      maximum: "64MiB",
    }),
    "max-bytes-in-flight": size({
      description: "Total size of what is kept. Further streams are not resumed.",
      default: "256MiB",
      minimum: "1KiB",
      maximum: "64GiB",
    }),
  },
);

export const retry = section(
  "Retries on another engine. A request is never retried after the first byte of the answer; see `resume` for streams.",
  {
    "budget-ratio": number({
      description: "Retry budget: retries allowed per request, over the last ten seconds.",
      default: 0.2,
      minimum: 0,
      maximum: 1,
    }),
    "budget-minimum": integer({
      description: "Retries that are always allowed over the last ten seconds, in addition to `retry.budget-ratio`.",
      default: 50,
      minimum: 0,
      maximum: 1_000,
    }),
    statuses: list(integer({ description: "An HTTP status code.", minimum: 500, maximum: 599 }), {
      description: "HTTP status codes of an engine that lead to a retry.",
      maxItems: 100,
      default: [502, 503, 504],
    }),
  },
);

type EngineTree = ConfigTree["engines"][number];

/** Checks that every URL is valid, and no id or URL occurs twice. */
export function checkEngines(engines: readonly EngineTree[], path: Path): Problem[] {
  const problems: Problem[] = [];
  const firstWithId = new Map<string, number>();
  const firstWithUrl = new Map<string, number>();
  for (const [at, engine] of engines.entries()) {
    const url = normalizeUrl(engine.url);
    if (url === undefined) {
      problems.push({ path: [...path, at, "url"], message: `${JSON.stringify(engine.url)} is not a URL` });
      continue;
    }
    const [transfer, pull] = [engine["kv-transfer"], engine["kv-pull"]];
    if (pull?.protocol === "p2p" && transfer !== undefined) {
      const message = `"p2p" and \`kv-transfer\` both need the request's kv_transfer_params; leave out one of them`;
      problems.push({ path: [...path, at, "kv-pull"], message });
    }
    const sameUrl = firstWithUrl.get(url);
    const sameId = firstWithId.get(idOf(engine));
    if (sameUrl !== undefined) {
      problems.push({ path: [...path, at, "url"], message: `${url} is also the URL of engine ${sameUrl}` });
    } else if (sameId !== undefined) {
      problems.push({ path: [...path, at, "id"], message: `${idOf(engine)} is also the id of engine ${sameId}` });
    }
    firstWithUrl.set(url, sameUrl ?? at);
    firstWithId.set(idOf(engine), sameId ?? at);
  }
  return problems;
}

/** A derived id is at most as long as a configured one, since routers send ids to each other. */
const maxIdLength = 128;

/**
 * The configured id, or else host, port and path of the URL. If that is too long, it is cut and ends in a checksum of the
 * whole.
 */
function idOf({ id, url }: { readonly id?: string | undefined; readonly url: string }): string {
  if (id !== undefined) return id;
  const whole = (normalizeUrl(url) ?? url).replace(/^https?:\/\//, "");
  if (whole.length <= maxIdLength) return whole;
  const checksum = createHash("sha256").update(whole).digest("hex").slice(0, 16);
  return `${whole.slice(0, maxIdLength - checksum.length - 1)}~${checksum}`;
}

/** With its scheme, host in lower case, no default port, no trailing slash; undefined if it is not a URL. */
function normalizeUrl(written: string): string | undefined {
  const whole = /^https?:\/\//.test(written) ? written : `http://${written}`;
  if (!URL.canParse(whole)) return undefined;
  const { protocol, host, pathname } = new URL(whole);
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
  const isWrapped = isJsonObject(value) && Object.keys(value).every((key) => key === "engines");
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
  return settingsOf(engines, tree);
}
