import type { PullLimits } from "./pull-source.ts";
import type { EngineParameters } from "./types.ts";

export type PresetName =
  | "a10g-7b"
  | "h100-32b-tp2"
  | "h100-70b-tp4"
  | "h100-glm-4.6-tp8"
  | "b200-moe"
  | "h200-gpt-oss-120b"
  | "h200-llama-8b"
  | "l4-llama-8b"
  | "l40s-35b-moe-tp2"
  | "smg-generic";

export interface EnginePreset {
  readonly parameters: EngineParameters;
  readonly description: string;
  /** Bytes of KV per token on all GPUs together: the amount transferred when another engine fetches it. */
  readonly kvBytesPerToken: number;
  /** How other engines pull blocks from its CPU memory; only where it is known or measured. */
  readonly pull?: Omit<PullLimits, "bytesPerToken">;
  /** The source of each parameter (`pull.` before those of `pull`), or the arithmetic behind it. `estimate` marks mere estimates. */
  readonly sources: Readonly<Record<string, string>>;
}

const common = { flavour: "vllm", blockSize: 16, prefixCaching: true } as const;

const commonSources = {
  flavour: "vLLM V1",
  blockSize: "vLLM's default on CUDA",
  prefixCaching: "vLLM V1's default",
};

const batchBelow70Gib = "vLLM's default for the API server on GPUs below 70 GiB";
const batchFrom70Gib = "vLLM's default for the API server on GPUs of 70 GiB and more";

/** llm-d's blog of 2026-08-15 on P2P KV cache sharing, and the reports of its guide. */
const measured = "as measured by llm-d's guide to P2P KV cache sharing";

const fitted = (tokens: string): string =>
  `fitted to the published times to first token of ${tokens} tokens (llm-d, 2026-08-15)`;

/**
 * Engines by name. Times follow a roofline: prefill is bound by matrix arithmetic at a stated share of the peak, a
 * decode step by reading the weights once and the KV of every sequence.
 */
export const enginePresets: Readonly<Record<PresetName, EnginePreset>> = {
  "a10g-7b": {
    description: "Qwen2.5-7B in bf16 on one NVIDIA A10G (24 GB, 600 GB/s, 70 TFLOPS)",
    kvBytesPerToken: 57_344,
    parameters: {
      ...common,
      blockCount: 3_750,
      maxBatchedTokens: 2_048,
      maxRunning: 256,
      maxModelLength: 32_768,
      stepBaseMs: 33.7,
      prefillMsPerToken: 0.362,
      attentionMsPerTokenPair: 9.6e-6,
      decodeMsPerSequence: 0.06,
      decodeMsPerContextToken: 1.19e-4,
    },
    sources: {
      ...commonSources,
      kvBytesPerToken: "28 layers x 2 x 4 KV heads x 128 x 2 B",
      blockCount:
        "60,000 tokens: (24 GB x 0.9 - 15.2 GB weights - 3 GB activations and graphs) / 57,344 B per token " +
        "(28 layers x 2 x 4 KV heads x 128 x 2 B) = 59,300; llm-d reports about 60k",
      maxBatchedTokens: batchBelow70Gib,
      maxRunning: batchBelow70Gib,
      maxModelLength: "config.json of Qwen2.5-7B",
      stepBaseMs: "15.2 GB weights / (600 GB/s x 0.8) = 31.7 ms, and 2 ms of launches and scheduling (estimate)",
      prefillMsPerToken: "2 x 7.6e9 FLOP / (70 TFLOPS x 0.6); the share of the peak is an estimate",
      attentionMsPerTokenPair: "4 x 28 layers x 3,584 FLOP / (70 TFLOPS x 0.6)",
      decodeMsPerSequence: "estimate: sampling and kernel overhead; the arithmetic hides behind reading the weights",
      decodeMsPerContextToken: "57,344 B / (600 GB/s x 0.8)",
    },
  },
  "h100-32b-tp2": {
    description: "Qwen2.5-32B in bf16 on two NVIDIA H100 80 GB, tensor parallel",
    kvBytesPerToken: 262_144,
    parameters: {
      ...common,
      blockCount: 17_280,
      maxBatchedTokens: 8_192,
      maxRunning: 1_024,
      maxModelLength: 131_072,
      stepBaseMs: 15,
      prefillMsPerToken: 0.0657,
      attentionMsPerTokenPair: 1.33e-6,
      decodeMsPerSequence: 0.03,
      decodeMsPerContextToken: 5.2e-5,
    },
    sources: {
      ...commonSources,
      kvBytesPerToken: "64 layers x 2 x 8 KV heads x 128 x 2 B",
      blockCount:
        "276,480 tokens: (2 x 80 GB x 0.9 - 65.5 GB weights - 6 GB activations and graphs) / 262,144 B per token " +
        "(64 layers x 2 x 8 KV heads x 128 x 2 B)",
      maxBatchedTokens: batchFrom70Gib,
      maxRunning: batchFrom70Gib,
      maxModelLength: "Qwen2.5-32B with YaRN",
      stepBaseMs: "65.5 GB / (2 x 3.35 TB/s x 0.75) = 13 ms, and 2 ms overhead (estimate)",
      prefillMsPerToken: "2 x 32.5e9 FLOP / (2 x 989 TFLOPS x 0.5); the share of the peak is an estimate",
      attentionMsPerTokenPair: "4 x 64 layers x 5,120 FLOP / (2 x 989 TFLOPS x 0.5)",
      decodeMsPerSequence: "estimate: sampling and kernel overhead",
      decodeMsPerContextToken: "262,144 B / (2 x 3.35 TB/s x 0.75)",
    },
  },
  "h100-70b-tp4": {
    description: "Llama-3.1-70B in bf16 on four NVIDIA H100 80 GB, tensor parallel",
    kvBytesPerToken: 327_680,
    parameters: {
      ...common,
      blockCount: 25_740,
      maxBatchedTokens: 8_192,
      maxRunning: 1_024,
      maxModelLength: 131_072,
      stepBaseMs: 17.5,
      prefillMsPerToken: 0.0793,
      attentionMsPerTokenPair: 1.47e-6,
      decodeMsPerSequence: 0.03,
      decodeMsPerContextToken: 3.5e-5,
    },
    sources: {
      ...commonSources,
      kvBytesPerToken: "80 layers x 2 x 8 KV heads x 128 x 2 B",
      blockCount:
        "411,840 tokens: (4 x 80 GB x 0.9 - 141 GB weights - 12 GB activations and graphs) / 327,680 B per token " +
        "(80 layers x 2 x 8 KV heads x 128 x 2 B)",
      maxBatchedTokens: batchFrom70Gib,
      maxRunning: batchFrom70Gib,
      maxModelLength: "config.json of Llama-3.1-70B",
      stepBaseMs: "141 GB / (4 x 3.35 TB/s x 0.7) = 15 ms, and 2.5 ms overhead (estimate)",
      prefillMsPerToken: "2 x 70.6e9 FLOP / (4 x 989 TFLOPS x 0.45); the share of the peak is an estimate",
      attentionMsPerTokenPair: "4 x 80 layers x 8,192 FLOP / (4 x 989 TFLOPS x 0.45)",
      decodeMsPerSequence: "estimate: sampling and kernel overhead",
      decodeMsPerContextToken: "327,680 B / (4 x 3.35 TB/s x 0.7)",
    },
  },
  "h100-glm-4.6-tp8": {
    description: "GLM-4.6 (355B, 32B active), fp8 weights, bf16 KV, on eight NVIDIA H100 (80 GB)",
    kvBytesPerToken: 376_832,
    parameters: {
      ...common,
      blockCount: 36_000,
      maxBatchedTokens: 8_192,
      maxRunning: 1_024,
      maxModelLength: 202_752,
      stepBaseMs: 23,
      prefillMsPerToken: 0.03,
      attentionMsPerTokenPair: 1.63e-6,
      decodeMsPerSequence: 0.02,
      decodeMsPerContextToken: 1.87e-5,
    },
    sources: {
      ...commonSources,
      kvBytesPerToken: "92 layers x 2 x 8 KV heads x 128 x 2 B",
      blockCount: "(8 x 80 GiB x 0.9 - 357 GB of weights - 8 x 5 GB of activations) / (16 x 376,832 B)",
      maxBatchedTokens: batchFrom70Gib,
      maxRunning: batchFrom70Gib,
      maxModelLength: "config.json of GLM-4.6",
      stepBaseMs: "estimate: 80 % of 357 GB / (8 x 3.35 TB/s x 0.6) = 18 ms, and 5 ms of launches and all-reduces",
      prefillMsPerToken:
        "2 x 32e9 active FLOP / (8 x 1.98 PFLOPS fp8 x 0.135); the share is fitted to vLLM's curve in ThunderAgent's repository",
      attentionMsPerTokenPair: "4 x 92 layers x 96 heads x 128 FLOP / (8 x 0.99 PFLOPS bf16 x 0.35)",
      decodeMsPerSequence: "estimate: sampling and kernel overhead",
      decodeMsPerContextToken: "376,832 B / (8 x 3.35 TB/s x 0.75)",
    },
  },
  "b200-moe": {
    description: "Qwen3-235B-A22B in fp8 with fp8 KV on four NVIDIA B200, tensor parallel",
    kvBytesPerToken: 96_256,
    parameters: {
      ...common,
      blockCount: 196_875,
      maxBatchedTokens: 8_192,
      maxRunning: 1_024,
      maxModelLength: 262_144,
      stepBaseMs: 12,
      prefillMsPerToken: 0.007,
      attentionMsPerTokenPair: 9.8e-7,
      decodeMsPerSequence: 0.02,
      decodeMsPerContextToken: 5e-6,
    },
    sources: {
      ...commonSources,
      kvBytesPerToken: "94 layers x 2 x 4 KV heads x 128 x 1 B",
      blockCount:
        "3.15 M tokens, the capacity in Dynamo's published replay of the Mooncake conversation trace; it fits " +
        "(4 x 180 GB x 0.85 - 235 GB weights - 74 GB workspace, an estimate) / 96,256 B per token " +
        "(94 layers x 2 x 4 KV heads x 128 x 1 B)",
      maxBatchedTokens: batchFrom70Gib,
      maxRunning: batchFrom70Gib,
      maxModelLength: "config.json of Qwen3-235B-A22B-Instruct-2507",
      stepBaseMs: "estimate: 235 GB / (4 x 8 TB/s x 0.6) = 12 ms when every expert is touched",
      prefillMsPerToken: "2 x 22e9 active FLOP / (4 x 4.5 PFLOPS fp8 x 0.35); the share of the peak is an estimate",
      attentionMsPerTokenPair: "4 x 94 layers x 64 heads x 128 FLOP / (4 x 2.25 PFLOPS bf16 x 0.35)",
      decodeMsPerSequence: "estimate: sampling and kernel overhead",
      decodeMsPerContextToken: "96,256 B / (4 x 8 TB/s x 0.6)",
    },
  },
  "h200-gpt-oss-120b": {
    description: "gpt-oss-120b, 4-bit weights, bf16 KV, on one NVIDIA H200, with CPU memory to pull from",
    kvBytesPerToken: 41_500,
    pull: { bytesPerSecond: 50e9, pairBytesPerSecond: 12.5e9, latencyMs: 16 },
    parameters: {
      ...common,
      blockCount: 76_250,
      maxBatchedTokens: 8_192,
      maxRunning: 1_024,
      maxModelLength: 131_072,
      stepBaseMs: 8,
      prefillMsPerToken: 0.0299,
      attentionMsPerTokenPair: 3.4e-7,
      decodeMsPerSequence: 0.02,
      decodeMsPerContextToken: 1.15e-5,
      cpuBlocks: 138_750,
      cpuLoadMsPerBlock: 0.0121,
    },
    sources: {
      ...commonSources,
      kvBytesPerToken: `${measured}; every other layer keeps a window`,
      blockCount: `1.22 M tokens, ${measured}`,
      maxBatchedTokens: batchFrom70Gib,
      maxRunning: batchFrom70Gib,
      maxModelLength: "config.json of gpt-oss-120b",
      stepBaseMs: "estimate: the 5 GB of active weights of a step of few sequences, launches and scheduling",
      prefillMsPerToken: `${fitted("2k to 48k")} without a pull`,
      attentionMsPerTokenPair: `${fitted("2k to 48k")} without a pull`,
      decodeMsPerSequence: "estimate: sampling, kernel overhead, and further experts",
      decodeMsPerContextToken: "41,500 B / (4.8 TB/s x 0.75)",
      cpuBlocks: `2.22 M tokens in 88 GiB, ${measured}`,
      cpuLoadMsPerBlock: "16 x 41,500 B / 55 GB/s, PCIe 5.0 x16",
      "pull.bytesPerSecond": "estimate: a 400 Gbit/s adapter",
      "pull.pairBytesPerSecond": `${fitted("2k to 48k")} with a pull`,
      "pull.latencyMs": `${fitted("2k to 48k")} with a pull`,
    },
  },
  "h200-llama-8b": {
    description: "Llama-3.1-8B in bf16 on one NVIDIA H200, with CPU memory to pull from",
    kvBytesPerToken: 131_072,
    pull: { bytesPerSecond: 50e9, pairBytesPerSecond: 24e9, latencyMs: 20 },
    parameters: {
      ...common,
      blockCount: 31_250,
      maxBatchedTokens: 8_192,
      maxRunning: 1_024,
      maxModelLength: 131_072,
      stepBaseMs: 6.1,
      prefillMsPerToken: 0.022,
      attentionMsPerTokenPair: 1.05e-6,
      decodeMsPerSequence: 0.02,
      decodeMsPerContextToken: 3.64e-5,
      cpuBlocks: 16_384,
      cpuLoadMsPerBlock: 0.0381,
    },
    sources: {
      ...commonSources,
      kvBytesPerToken: "32 layers x 2 x 8 KV heads x 128 x 2 B",
      blockCount: `0.5 M tokens, ${measured}`,
      maxBatchedTokens: batchFrom70Gib,
      maxRunning: batchFrom70Gib,
      maxModelLength: "config.json of Llama-3.1-8B",
      stepBaseMs: "16.1 GB / (4.8 TB/s x 0.75) = 4.5 ms, and 1.6 ms overhead (estimate)",
      prefillMsPerToken: `${fitted("1k to 16k")} without a pull`,
      attentionMsPerTokenPair: `${fitted("1k to 16k")} without a pull`,
      decodeMsPerSequence: "estimate: sampling and kernel overhead",
      decodeMsPerContextToken: "131,072 B / (4.8 TB/s x 0.75)",
      cpuBlocks: `32 GiB / (16 x 131,072 B), ${measured}`,
      cpuLoadMsPerBlock: "16 x 131,072 B / 55 GB/s, PCIe 5.0 x16",
      "pull.bytesPerSecond": "estimate: a 400 Gbit/s adapter",
      "pull.pairBytesPerSecond": `${fitted("1k to 16k")} with a pull`,
      "pull.latencyMs": `${fitted("1k to 16k")} with a pull`,
    },
  },
  "l4-llama-8b": {
    description: "Llama-3.1-8B in bf16 on one NVIDIA L4 (24 GB, 300 GB/s, 121 TFLOPS), with SGLang",
    kvBytesPerToken: 131_072,
    parameters: {
      ...common,
      flavour: "sglang",
      blockCount: 1_400,
      maxBatchedTokens: 2_048,
      maxRunning: 256,
      maxModelLength: 131_072,
      stepBaseMs: 62,
      prefillMsPerToken: 0.27,
      attentionMsPerTokenPair: 4.4e-6,
      decodeMsPerSequence: 0.1,
      decodeMsPerContextToken: 5.1e-4,
    },
    sources: {
      ...commonSources,
      flavour: "SGLang's radix cache",
      kvBytesPerToken: "32 layers x 2 x 8 KV heads x 128 x 2 B",
      blockCount:
        "22,400 tokens: 0.8 (`mem-fraction-static` of SkyWalker's engines) x 22.5 GiB - 15 GiB weights = 2.9 GiB / 131,072 B, " +
        "rounded down",
      maxBatchedTokens: "SGLang's `chunked_prefill_size` on GPUs below 35 GB",
      maxRunning: "estimate: SGLang derives it from the KV memory, which is the narrower bound here",
      maxModelLength: "config.json of Llama-3.1-8B",
      stepBaseMs: "16.1 GB / (300 GB/s x 0.9) = 60 ms, and 2 ms overhead (estimate)",
      prefillMsPerToken: "2 x 8e9 FLOP / (121 TFLOPS x 0.5); the share of the peak is an estimate",
      attentionMsPerTokenPair:
        "4 x 32 layers x 4,096 FLOP / (121 TFLOPS), at an estimated share of 1 in flash attention",
      decodeMsPerSequence: "estimate: sampling and kernel overhead",
      decodeMsPerContextToken: "131,072 B / (300 GB/s x 0.85)",
    },
  },
  "l40s-35b-moe-tp2": {
    description: "Qwen3.5-35B-A3B in fp8 on two NVIDIA L40S (48 GB each), tensor parallel, with SGLang",
    kvBytesPerToken: 20_480,
    parameters: {
      ...common,
      flavour: "sglang",
      blockCount: 65_000,
      maxBatchedTokens: 4_096,
      maxRunning: 64,
      maxModelLength: 32_768,
      stepBaseMs: 8,
      prefillMsPerToken: 0.1,
      attentionMsPerTokenPair: 7.5e-7,
      decodeMsPerSequence: 0.5,
      decodeMsPerContextToken: 2e-5,
    },
    sources: {
      ...commonSources,
      flavour: "SGLang's radix cache",
      kvBytesPerToken: "10 layers with full attention of 40 x 2 x 2 KV heads x 256 x 2 B",
      blockCount:
        "1.04 M tokens: 0.8 (`mem-fraction` of GORGO's engines) x 89 GiB - 33 GiB weights = 38 GiB, of which the states of " +
        "linear attention take 47 % (SGLang's default, an estimate of what it means here)",
      maxBatchedTokens: "SGLang's `chunked_prefill_size` on GPUs of 35 to 60 GB",
      maxRunning: "given: GORGO's `max_concurrent_requests`",
      maxModelLength: "given: GORGO's `context-length`",
      stepBaseMs: "estimate, by GORGO's 8.1 ms between tokens at little load",
      prefillMsPerToken: "measured by GORGO's calibration: 0.086 to 0.107 ms a token",
      attentionMsPerTokenPair: "4 x 10 layers x 4,096 FLOP / (2 x 362 TFLOPS x 0.3), an estimate",
      decodeMsPerSequence: "estimate: each sequence reads experts of its own",
      decodeMsPerContextToken: "20,480 B / (2 x 864 GB/s x 0.6)",
    },
  },
  "smg-generic": {
    description: "The engine of the simulation of 240 workers that the SMG mesh was measured with",
    kvBytesPerToken: 131_072,
    parameters: {
      ...common,
      blockCount: 32_768,
      maxBatchedTokens: 2_048,
      maxRunning: 256,
      maxModelLength: 131_072,
      stepBaseMs: 6,
      prefillMsPerToken: 0.125,
      attentionMsPerTokenPair: 0,
      decodeMsPerSequence: 0.35,
      decodeMsPerContextToken: 0,
    },
    sources: {
      ...commonSources,
      kvBytesPerToken: "estimate: not given; that of an 8B model (32 layers x 2 x 8 KV heads x 128 x 2 B)",
      blockCount: "given: 524,288 KV tokens in blocks of 16",
      maxBatchedTokens: "estimate: not given; vLLM's default below 70 GiB",
      maxRunning: "given",
      maxModelLength: "estimate: not given",
      stepBaseMs: "given: a step takes 6 ms + 0.35 ms x batch",
      prefillMsPerToken: "given: 8,000 tokens/s",
      attentionMsPerTokenPair: "given: prefill time does not depend on context",
      decodeMsPerSequence: "given: a step takes 6 ms + 0.35 ms x batch",
      decodeMsPerContextToken: "given: none",
    },
  },
};

export const presetNames = Object.keys(enginePresets) as readonly PresetName[];
