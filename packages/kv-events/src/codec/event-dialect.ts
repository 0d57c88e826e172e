/**
 * How events are spelled on the wire.
 *
 * - `vllm-0.23`: arrays, the tag first, absent fields nil; one hash per removal
 * - `vllm-0.32`: maps without what has its default
 * - `sglang-0.5.23`: maps, signed hashes, the salt in a field of its own, many hashes per removal
 * - `sglang-array`: the same fields as arrays, as SGLang had them before, without the salt
 * - `trtllm`: arrays of vLLM's first seven fields, many hashes per removal
 */
export const eventDialects = ["vllm-0.23", "vllm-0.32", "sglang-0.5.23", "sglang-array", "trtllm"] as const;

export type EventDialect = (typeof eventDialects)[number];

/** Whether an engine of this dialect sends the topic with what it replays (vLLM does since 0.26). */
export function replayCarriesTopic(dialect: EventDialect): boolean {
  return dialect === "vllm-0.32" || dialect === "sglang-0.5.23";
}
