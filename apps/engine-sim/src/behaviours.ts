/** A way in which a release of an engine differs from what clients of its API expect. */
interface Behaviour {
  /** Flavour and release that show it, then what it is. */
  readonly name: `${"vllm" | "sglang" | "trtllm" | "llama.cpp"}-${string}:${string}`;
  /** One line of `--help`. */
  readonly summary: string;
  /** The engine's source file, capture or public report that shows it. */
  readonly source: string;
}

/** Everything that `--behaviour` can turn on. All are off by default: the plain simulation answers as clients hope. */
export const behaviours = [
  {
    name: "sglang-0.5.23:health-takes-a-second",
    summary: "GET /health generates a token, and answers after 1 s of sleep",
    source: "sglang/srt/entrypoints/http_server.py, health_generate (SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION)",
  },
  {
    name: "vllm-0.32.0:second-node-ranks",
    summary: "has the rank 4 of a second node, in metrics and KV events, and refuses requests for other ranks",
    source: "vllm/engine/arg_utils.py, --data-parallel-start-rank; report vllm-project/router#210",
  },
] as const satisfies readonly Behaviour[];

export type BehaviourName = (typeof behaviours)[number]["name"];

/** Data-parallel rank of a simulated engine. */
export function rankOf(behaviours: ReadonlySet<BehaviourName>): number {
  return behaviours.has("vllm-0.32.0:second-node-ranks") ? 4 : 0;
}

/**
 * Names of behaviours from what `--behaviour` was given: one of them, or a release for all of its own.
 *
 * @throws RangeError for what is neither
 */
export function behavioursNamed(written: readonly string[]): ReadonlySet<BehaviourName> {
  const found = new Set<BehaviourName>();
  for (const text of written) {
    const named = behaviours.filter(({ name }) => name === text || name.startsWith(`${text}:`));
    if (named.length === 0) {
      throw new RangeError(`behaviour must be one of ${behaviours.map(({ name }) => name).join(", ")}, or a release`);
    }
    for (const { name } of named) found.add(name);
  }
  return found;
}
