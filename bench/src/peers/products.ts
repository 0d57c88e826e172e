import { haproxyConfiguration, nginxConfiguration } from "./plain-proxies.ts";

/** Where a product comes from: the Python package index, or packages of the Linux distribution. */
type PeerSource =
  | { readonly kind: "pip"; readonly package: string; readonly release: string; readonly program: string }
  | { readonly kind: "apt"; readonly package: string; readonly program: string };

/** The start parameters of a product. */
export interface PeerStart {
  readonly port: number;
  /** For listeners other than the one for requests, if any. */
  readonly metricsPort: number;
  readonly engineUrls: readonly string[];
  readonly policy: string;
  /** An empty folder for the product alone. */
  readonly folder: string;
}

export interface PeerCommand {
  readonly arguments: readonly string[];
  /** Files to write into its folder first, by name. */
  readonly files?: Readonly<Record<string, string>>;
}

/** Another project's router, or a proxy that is used in a router's place. */
export interface Product {
  readonly name: string;
  readonly source: PeerSource;
  /** The policy for all loads: the cache-aware one, if bytes of the body suffice for it. */
  readonly policy: string;
  command(start: PeerStart): PeerCommand;
}

/** The name for round robin in the benches and in all products. */
export const roundRobin = "round_robin";
export const cacheAware = "cache_aware";

const pip = (name: string, release: string): PeerSource => ({ kind: "pip", package: name, release, program: name });

/** How to start the three routers with a common ancestor; their logs are as quiet as possible. */
function rustRouter({ port, metricsPort, engineUrls, policy }: PeerStart, quiet: string): readonly string[] {
  return [
    ...["--host", "127.0.0.1", "--port", String(port)],
    ...["--worker-urls", ...engineUrls],
    ...["--policy", policy],
    ...["--prometheus-host", "127.0.0.1", "--prometheus-port", String(metricsPort)],
    ...["--log-level", quiet],
  ];
}

/** SMG in front of engines that speak vLLM's protocol. */
export function smgArguments(start: PeerStart): readonly string[] {
  return ["launch", ...rustRouter(start, "error"), "--backend", "vllm", "--disable-tokenizer-autoload"];
}

/** The products, each in the release for which the suite was written. */
export const products: readonly Product[] = [
  {
    name: "sglang-router",
    source: pip("sglang-router", "0.3.2"),
    policy: cacheAware,
    command: (start) => ({ arguments: ["launch", ...rustRouter(start, "error")] }),
  },
  {
    name: "smg",
    source: pip("smg", "1.13.0"),
    policy: cacheAware,
    command: (start) => ({ arguments: smgArguments(start) }),
  },
  {
    // Its cache_aware asks every engine to render the prompt, which is another kind of work than the others do.
    name: "vllm-router",
    source: pip("vllm-router", "0.1.17"),
    policy: roundRobin,
    command: (start) => ({ arguments: rustRouter(start, "error") }),
  },
  {
    name: "nginx",
    source: { kind: "apt", package: "nginx", program: "usr/sbin/nginx" },
    policy: roundRobin,
    command: (start) => ({
      arguments: ["-p", start.folder, "-c", `${start.folder}/nginx.conf`, "-e", "stderr"],
      files: { "nginx.conf": nginxConfiguration(start) },
    }),
  },
  {
    name: "haproxy",
    source: { kind: "apt", package: "haproxy", program: "usr/sbin/haproxy" },
    policy: roundRobin,
    command: (start) => ({
      arguments: ["-db", "-q", "-f", `${start.folder}/haproxy.cfg`],
      files: { "haproxy.cfg": haproxyConfiguration(start) },
    }),
  },
];
