import { haproxyConfiguration, nginxConfiguration } from "./plain-proxies.ts";

/** Where a product comes from: the Python package index, or packages of the Linux distribution. */
export type PeerSource =
  | { readonly kind: "pip"; readonly package: string; readonly release: string; readonly program: string }
  | { readonly kind: "apt"; readonly package: string; readonly program: string };

/** What a product is told when it is started. */
export interface PeerStart {
  readonly port: number;
  /** For what it listens for beside requests, if it does. */
  readonly metricsPort: number;
  readonly engineUrls: readonly string[];
  readonly policy: string;
  /** A folder of its own, empty. */
  readonly folder: string;
}

export interface PeerCommand {
  readonly arguments: readonly string[];
  /** Files to write into its folder first, by name. */
  readonly files?: Readonly<Record<string, string>>;
}

/** A router of somebody else, or a proxy that people put in a router's place. */
export interface Product {
  readonly name: string;
  readonly source: PeerSource;
  /** The policy of all loads: the one that looks at caches, where the bodies' bytes are enough for it. */
  readonly policy: string;
  command(start: PeerStart): PeerCommand;
}

/** What the benches call round robin, as all products do. */
export const roundRobin = "round_robin";
export const cacheAware = "cache_aware";

const pip = (name: string, release: string, program = name): PeerSource => ({
  kind: "pip",
  package: name,
  release,
  program,
});

/** How the three routers that share an ancestor are started; their logs are as quiet as they go. */
function rustRouter({ port, metricsPort, engineUrls, policy }: PeerStart, quiet: string): readonly string[] {
  return [
    ...["--host", "127.0.0.1", "--port", String(port)],
    ...["--worker-urls", ...engineUrls],
    ...["--policy", policy],
    ...["--prometheus-host", "127.0.0.1", "--prometheus-port", String(metricsPort)],
    ...["--log-level", quiet],
  ];
}

/** SMG in front of engines that speak as vLLM does. */
export function smgArguments(start: PeerStart): readonly string[] {
  return ["launch", ...rustRouter(start, "error"), "--backend", "vllm", "--disable-tokenizer-autoload"];
}

/** The products, each in the release that the suite was written against. */
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
