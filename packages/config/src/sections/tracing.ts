import { Type } from "typebox";
import type { Path, Problem } from "../problems.ts";
import type { ConfigTree } from "../schema.ts";
import { number, section, text } from "../schema-builders.ts";
import { Secret } from "../secret.ts";

export const tracing = section("Traces of requests, sent to an OpenTelemetry collector over OTLP/HTTP.", {
  endpoint: Type.Optional(
    text({
      description:
        "Base URL of the collector, to which `/v1/traces` is added: `http://127.0.0.1:4318`. Without one nothing is traced. Where nothing else gives it, `OTEL_EXPORTER_OTLP_ENDPOINT` does.",
      maxLength: 2_048,
      pattern: "^https?://[^\\s/?#@]+(/[^\\s?#]*)?$",
      expected: "an http or https URL without user, query or fragment",
    }),
  ),
  headers: Type.Optional(
    text({
      description:
        "Headers for the collector, as `name=value` pairs with commas between them, values percent-encoded; such as a key. Where nothing else gives them, `OTEL_EXPORTER_OTLP_HEADERS` does.",
      maxLength: 8_192,
      isSecret: true,
    }),
  ),
  "service-name": text({
    description: "What traces call this service. Where nothing else gives it, `OTEL_SERVICE_NAME` does.",
    default: "espalier-router",
    maxLength: 255,
  }),
  sample: number({
    description:
      "Share of the requests that are traced where the caller has not decided. A caller's `traceparent` that says sampled is followed, and one that says not sampled as well.",
    minimum: 0,
    maximum: 1,
    default: 0.01,
  }),
});

/** Where traces of requests go, and of which. */
export interface TracingConfig {
  /** Base URL of the collector; undefined when nothing is traced. */
  readonly endpoint: string | undefined;
  /** For the collector, by name in lower case. */
  readonly headers: Readonly<Record<string, Secret>>;
  readonly serviceName: string;
  /** From 0 to 1. */
  readonly sampleShare: number;
}

export function compileTracing({ tracing }: ConfigTree): TracingConfig {
  const pairs = readPairs(tracing.headers ?? "") ?? [];
  return {
    endpoint: tracing.endpoint,
    headers: Object.fromEntries(pairs.map(([name, value]) => [name, new Secret(value)])),
    serviceName: tracing["service-name"],
    sampleShare: tracing.sample,
  };
}

export function checkTracing({ tracing: { headers } }: ConfigTree): Problem[] {
  const path: Path = ["tracing", "headers"];
  if (headers === undefined || readPairs(headers)) return [];
  return [{ path, message: "must be name=value pairs with commas between them, values percent-encoded" }];
}

const fieldName = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const fieldValue = /^[\x20-\x7e]*$/;

/** The form of `OTEL_EXPORTER_OTLP_HEADERS`. @returns undefined when a pair is none */
function readPairs(text: string): readonly (readonly [string, string])[] | undefined {
  const pairs: (readonly [string, string])[] = [];
  for (const part of text.split(",")) {
    const at = part.indexOf("=");
    if (part.trim() === "") continue;
    const name = part.slice(0, Math.max(0, at)).trim();
    const value = decode(part.slice(at + 1).trim());
    if (at < 0 || !fieldName.test(name) || value === undefined || !fieldValue.test(value)) return undefined;
    pairs.push([name.toLowerCase(), value]);
  }
  return pairs;
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
