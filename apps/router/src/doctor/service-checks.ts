import { systemScheduler } from "@espalier/core";
import { type CompiledConfig, type OverflowProbe, probeCollector, probeOverflow } from "@espalier/server";
import { type CheckRow, type Finding, fail, pass, reasonOf, tlsErrors, warn } from "./check.ts";
import type { Examined } from "./examined.ts";

/** What a router uses beside engines and other routers. */
export const serviceChecks: readonly CheckRow<Pick<Examined, "config">>[] = [
  { name: "overflow", applies: ({ config }) => config.overflow.length > 0, run: ({ config }) => checkOverflow(config) },
  {
    name: "tracing",
    applies: ({ config }) => config.tracing.endpoint !== undefined,
    run: ({ config }) => checkTracing(config),
  },
];

const systemAuthorities = "the system's authorities are trusted: name further ones by NODE_EXTRA_CA_CERTS";

async function checkOverflow(config: CompiledConfig): Promise<readonly Finding[]> {
  const probes = await probeOverflow(config);
  return probes.map((probe, at) => checkBackend(config.overflow[at]!, probe, `overflow[${at}]`));
}

type Backend = CompiledConfig["overflow"][number];

/** Whether requests would reach a backend, with its key, and whether it has the models. */
function checkBackend({ name, url, models }: Backend, { status, error, models: listed }: OverflowProbe, path: string) {
  const target = `${name} at ${url}`;
  if (status === 0) {
    const reason = reasonOf(error);
    const fix = tlsErrors.test(reason) ? systemAuthorities : "fix its URL, or open the network path";
    return fail(target, reason, { setting: `${path}.url`, fix });
  }
  const says = `/v1/models answers ${status}`;
  if (status === 401 || status === 403) {
    return fail(target, `${says}: its key is missing or wrong`, { setting: `${path}.key`, fix: "set its API key" });
  }
  if (status >= 300 && status < 400) {
    return fail(target, `${says}: redirects are not followed`, {
      setting: `${path}.url`,
      fix: "set the URL it leads to",
    });
  }
  if (status !== 200 || listed === undefined) {
    const fix = "check that the URL is the base of its API, with /v1 or without";
    return warn(target, `${says} without a list: its models are not known`, { setting: `${path}.url`, fix });
  }
  const missing = [...models.values()].filter((model) => !listed.has(model));
  if (missing.length === 0) return pass(target, `takes the key and lists ${[...models.values()].join(", ")}`);
  const fix = "use names of its list; names that it answers to without listing them are fine";
  return warn(target, `does not list ${missing.join(", ")}`, { setting: `${path}.models`, fix });
}

async function checkTracing({ tracing: { endpoint = "", headers } }: CompiledConfig): Promise<readonly Finding[]> {
  const revealed = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, value.reveal()]));
  const error = await probeCollector({ endpoint, headers: revealed }, systemScheduler);
  if (!error) return [pass(endpoint, "accepts spans")];
  const reason = reasonOf(error);
  const { code } = error as { readonly code?: unknown };
  const isRefused = code === 401 || code === 403;
  const advice = isRefused
    ? { setting: "tracing.headers", fix: "set the headers, such as an API key, that the collector asks for" }
    : {
        setting: "tracing.endpoint",
        fix: tlsErrors.test(reason) ? systemAuthorities : "name a collector's OTLP/HTTP port, usually 4318",
      };
  const answer = typeof code === "number" ? `answers ${code}: ` : "";
  return [fail(endpoint, `spans would be lost: ${answer}${reason}`, advice)];
}
