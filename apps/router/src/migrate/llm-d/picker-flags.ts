import { UsageError } from "../../cli/read-flags.ts";

/** A command line of `serve`, and what of the other one has no effect, one line each. */
export interface PickerCommand {
  readonly args: readonly string[];
  readonly notes: readonly string[];
}

/** What `serve` does unasked or does not have: logs are JSON off a terminal, all pickers are active. */
const withoutEffect: ReadonlySet<string> = new Set([
  ...["pool-group", "zap-encoder", "v", "tracing", "health-checking", "metrics-endpoint-auth", "enable-cert-reload"],
  ...["ha-enable-leader-election", "model-server-metrics-scheme"],
]);

/**
 * Translates the command line of llm-d's picker, as its chart and KServe write it, into one of `serve`. Without a
 * configuration file of Espalier's, the named InferencePool is followed.
 *
 * @param written arguments, of which the first is `--pool-name`; empty ones count as absent
 * @param env `NAMESPACE` is the pool's namespace where no flag names it; with `ESPALIER_ADMIN_KEY` the metrics' port is open
 * @param readText reads the file of `--config-file`
 * @returns undefined for any other command line
 * @throws UsageError when a certificate is missing
 */
export function readPickerCommand(
  written: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  readText: (path: string) => string,
): PickerCommand | undefined {
  if (!/^--pool-name(?:=|$)/.test(written[0] ?? "")) return undefined;
  const flags = readGoFlags(written);
  const take = (name: string): string | undefined => {
    const value = flags.get(name);
    flags.delete(name);
    return value;
  };
  const notes: string[] = [];
  const plugins = "llm-d's plugins are not loaded; `espalier migrate --from llm-d` translates their configuration";
  const file = take("config-file");
  const isTheirs = file !== undefined && /^\s*"?kind"?:\s*"?EndpointPickerConfig/m.test(readText(file));
  if (isTheirs || take("config-text") !== undefined) notes.push(plugins);
  const own = isTheirs ? undefined : file;
  const hasFile = Boolean(own ?? env.ESPALIER_CONFIG);

  const pool = take("pool-name") ?? "";
  const namespace = take("pool-namespace") ?? env.NAMESPACE;
  const args = ["serve"];
  if (own !== undefined) args.push("--config", own);
  if (!hasFile) args.push("--discover-inference-pool", namespace ? `${namespace}/${pool}` : pool);
  args.push("--endpoint-picker-host", "0.0.0.0", "--endpoint-picker-port", take("grpc-port") ?? "9002");
  args.push("--endpoint-picker-health-port", take("grpc-health-port") ?? "9003");
  if (isOn(take("emit-endpoint-scores"))) args.push("--endpoint-picker-scores", "true");
  const metricsPort = take("metrics-port") ?? "9090";
  if (env.ESPALIER_ADMIN_KEY) args.push("--admin-host", "0.0.0.0", "--admin-port", metricsPort);
  else notes.push("ESPALIER_ADMIN_KEY is not set: metrics and the admin API are served on loopback only");
  const certificates = take("cert-path");
  const isSecure = isOn(take("secure-serving") ?? "true");
  if (isSecure && certificates !== undefined) {
    args.push("--endpoint-picker-tls-cert-file", `${certificates}/tls.crt`);
    args.push("--endpoint-picker-tls-key-file", `${certificates}/tls.key`);
  } else if (isSecure && !hasFile) {
    throw new UsageError(
      "the picker makes no certificate of its own: add --cert-path=FOLDER with tls.crt and tls.key, or --secure-serving=false for gateways that connect without TLS",
    );
  }
  const unknown = [...flags.keys()].filter((name) => !withoutEffect.has(name));
  if (unknown.length > 0) notes.push(`without effect here: ${unknown.map((name) => `--${name}`).join(", ")}`);
  return { args, notes };
}

const isOn = (value: string | undefined): boolean => value !== undefined && value !== "false";

/** Flags as Go reads them: `--name=value`, `--name value`, or `--name` for true. The last of a name counts. */
function readGoFlags(written: readonly string[]): Map<string, string> {
  const flags = new Map<string, string>();
  const words = written.filter((word) => word !== "");
  for (let at = 0; at < words.length; at++) {
    const [, name, value] = /^--?([a-z][a-z0-9-]*)(?:=(.*))?$/is.exec(words[at]!) ?? [];
    if (name === undefined) continue;
    const next = words[at + 1];
    const isNext = value === undefined && next !== undefined && !/^--?[a-z]/i.test(next);
    flags.set(name, value ?? (isNext ? next : "true"));
    if (isNext) at++;
  }
  return flags;
}
