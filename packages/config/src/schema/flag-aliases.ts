/** A flag of another router that means the same as one of ours. */
export interface FlagAlias {
  readonly flag: string;
  /** The unit that its bare number has there: put behind the value. */
  readonly unit: "" | "s";
}

const same = (name: string): FlagAlias => ({ flag: `--${name}`, unit: "" });
const seconds = (name: string): FlagAlias => ({ flag: `--${name}`, unit: "s" });

/**
 * Flags of SGLang's router and SMG (sglang-router 0.3, `router_args.py`), by the path of the setting that they give. Those of
 * policies stand beside the policies' options, because files may use them too.
 */
export const flagAliases: Readonly<Record<string, readonly FlagAlias[]>> = {
  engines: [same("worker-urls")],
  "listen.host": [same("host")],
  "listen.port": [same("port")],
  "listen.tls.cert-file": [same("server-cert-path")],
  "listen.tls.key-file": [same("server-key-path")],
  "admin.host": [same("prometheus-host")],
  "admin.port": [same("prometheus-port")],
  "engine-tls.cert-file": [same("client-cert-path")],
  "engine-tls.key-file": [same("client-key-path")],
  "health.path": [same("health-check-endpoint")],
  "health.interval": [seconds("health-check-interval-secs")],
  "health.timeout": [seconds("health-check-timeout-secs")],
  "health.down-after": [same("health-failure-threshold")],
  "health.up-after": [same("health-success-threshold")],
  "breaker.consecutive-failures": [same("cb-failure-threshold")],
  "breaker.successes-to-close": [same("cb-success-threshold")],
  "breaker.open": [seconds("cb-timeout-duration-secs")],
  "breaker.window": [seconds("cb-window-duration-secs")],
  "limits.max-body-bytes": [same("max-payload-size")],
  "limits.max-concurrent-requests": [same("max-concurrent-requests")],
  "drain.grace": [seconds("shutdown-grace-period-secs")],
};
