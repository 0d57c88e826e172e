import { Type } from "typebox";
import type { Path, Problem } from "../problems.ts";
import type { ConfigTree } from "../schema.ts";
import { number, section, text } from "../schema-builders.ts";
import { Secret } from "../secret.ts";
import { compiled, type SettingsOf } from "../settings-of.ts";

const tracingSection = section("Traces of requests, exported to an OpenTelemetry collector over OTLP/HTTP.", {
  endpoint: Type.Optional(
    text({
      description:
        "Base URL of the OpenTelemetry collector, such as `http://127.0.0.1:4318`; `/v1/traces` is added to it. Without it, nothing is traced. `OTEL_EXPORTER_OTLP_ENDPOINT` sets it if nothing else does.",
      maxLength: 2_048,
      pattern: "^https?://[^\\s/?#@]+(/[^\\s?#]*)?$",
      expected: "an http or https URL without user, query or fragment",
    }),
  ),
  headers: Type.Optional(
    text({
      description:
        "Headers for the collector, such as an API key: comma-separated `name=value` pairs with percent-encoded values. `OTEL_EXPORTER_OTLP_HEADERS` sets them if nothing else does.",
      maxLength: 8_192,
      isSecret: true,
    }),
  ),
  "service-name": text({
    description: "Service name in traces. `OTEL_SERVICE_NAME` sets it if nothing else does.",
    default: "espalier-router",
    maxLength: 255,
  }),
  sample: number({
    description:
      "Share of requests to trace when the caller has not decided. The sampling decision in a caller's `traceparent` is followed either way.",
    minimum: 0,
    maximum: 1,
    default: 0.01,
  }),
});

/** Headers are one text, in OpenTelemetry's own format. */
export const tracing = compiled(tracingSection, ({ headers, ...settings }) => {
  const pairs = readPairs(headers?.reveal() ?? "") ?? [];
  const byName: Readonly<Record<string, Secret>> = Object.fromEntries(
    pairs.map(([name, value]) => [name, new Secret(value)]),
  );
  return { ...settings, /** By name in lower case. */ headers: byName };
});

/** Where to send traces, and which requests to trace. */
export type TracingConfig = SettingsOf<typeof tracing>;

export function checkTracing({ tracing: { headers } }: ConfigTree): Problem[] {
  const path: Path = ["tracing", "headers"];
  if (headers === undefined || readPairs(headers)) return [];
  return [{ path, message: "must be name=value pairs with commas between them, values percent-encoded" }];
}

const fieldName = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const fieldValue = /^[\x20-\x7e]*$/;

/** The format of `OTEL_EXPORTER_OTLP_HEADERS`. @returns undefined when a pair is malformed */
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
