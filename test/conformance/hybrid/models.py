"""Tiny models of each kind of hybrid attention, by the keys of their real config.json."""

# Keys that every tiny model shares. A small vocabulary keeps output ids small.
COMMON = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "initializer_range": 0.02,
    "vocab_size": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}

# Models whose heads divide the hidden size.
WIDE = {**COMMON, "hidden_size": 128}

SLIDING, FULL = "sliding_attention", "full_attention"

GEMMA3 = {
    **COMMON,
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "num_hidden_layers": 2,
    "sliding_window": 96,
    "layer_types": [SLIDING, FULL],
    "query_pre_attn_scalar": 32,
    "hidden_activation": "gelu_pytorch_tanh",
    "rope_local_base_freq": 10000.0,
    "attention_bias": False,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
}


# Three sliding-window layers for each full one: several groups share the window.
GEMMA3_GROUPS = {**GEMMA3, "num_hidden_layers": 4, "layer_types": [SLIDING, SLIDING, SLIDING, FULL]}

# Heads of full-attention layers are larger, so pages and blocks differ.
GEMMA4 = {
    **COMMON,
    "architectures": ["Gemma4ForCausalLM"],
    "model_type": "gemma4_text",
    "num_hidden_layers": 2,
    "sliding_window": 96,
    "layer_types": [SLIDING, FULL],
    "global_head_dim": 64,
    "num_global_key_value_heads": 2,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": 128,
}

GEMMA3N = {
    **COMMON,
    "architectures": ["Gemma3nForCausalLM"],
    "model_type": "gemma3n_text",
    "num_hidden_layers": 2,
    "num_kv_shared_layers": 0,
    "sliding_window": 96,
    "layer_types": [SLIDING, FULL],
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size_per_layer_input": 32,
    "vocab_size_per_layer_input": 128,
    "intermediate_size": 128,
    "activation_sparsity_pattern": [0.0, 0.0],
    "laurel_rank": 16,
}

GPT_OSS = {
    **COMMON,
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "num_hidden_layers": 2,
    "sliding_window": 128,
    "layer_types": [SLIDING, FULL],
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "attention_bias": True,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 4096,
    },
}

LLAMA4 = {
    **COMMON,
    "architectures": ["Llama4ForCausalLM"],
    "model_type": "llama4_text",
    "num_hidden_layers": 2,
    "attention_chunk_size": 128,
    "no_rope_layers": [1, 0],
    "intermediate_size_mlp": 128,
    "num_local_experts": 2,
    "num_experts_per_tok": 1,
    "interleave_moe_layer_step": 4,
}

COHERE2 = {
    **WIDE,
    "architectures": ["Cohere2ForCausalLM"],
    "model_type": "cohere2",
    "num_hidden_layers": 2,
    "sliding_window": 128,
    "layer_types": [SLIDING, FULL],
    "layer_norm_eps": 1e-05,
    "logit_scale": 0.25,
    "tie_word_embeddings": True,
}

JAMBA = {
    **WIDE,
    "architectures": ["JambaForCausalLM"],
    "model_type": "jamba",
    "num_hidden_layers": 2,
    "attn_layer_period": 2,
    "attn_layer_offset": 1,
    "expert_layer_period": 8,
    "expert_layer_offset": 7,
    "num_experts": 2,
    "mamba_d_state": 8,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_dt_rank": 8,
}

QWEN3_NEXT = {
    **COMMON,
    # Pages as large as a state: the CPU kernel takes linear heads of 128.
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "num_hidden_layers": 2,
    "layer_types": ["linear_attention", FULL],
    "partial_rotary_factor": 0.25,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 1,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_experts": 4,
    "num_experts_per_tok": 2,
}

LFM2 = {
    **WIDE,
    "architectures": ["Lfm2ForCausalLM"],
    "model_type": "lfm2",
    "num_hidden_layers": 2,
    "layer_types": ["conv", FULL],
    "conv_L_cache": 3,
    "conv_bias": False,
    "norm_eps": 1e-05,
    "block_auto_adjust_ff_dim": False,
    "block_dim": 128,
    "block_ff_dim": 128,
    "block_multiple_of": 32,
    "block_ffn_dim_multiplier": 1.0,
}

# All layers have one window: a single group without full attention.
MISTRAL = {
    **COMMON,
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
    "num_hidden_layers": 2,
    "sliding_window": 96,
}

# Never loaded: it carries the layers of a kind that runs without a forward pass.
CARRIER = {**COMMON, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 1}


def kind(config, *arguments, blocks=96, block_size=32, **more):
    sizes = ("--num-gpu-blocks-override", str(blocks), "--block-size", str(block_size))
    return {"config": config, "arguments": [*sizes, *arguments], **more}


def driven(layers, *arguments, **more):
    return kind(CARRIER, *arguments, layers=layers, **more)


# What the Mamba2 mixer asks for; its CPU kernel lacks the states within a prompt
# that this needs, so granitemoehybrid, bamba, nemotron_h and others run driven.
MIXER2 = {"num_prefill_checkpoint_blocks": 1, "prefill_checkpoint_alignment": 1}
ALIGN = ("--mamba-cache-mode", "align")
INTERVAL = "--prefix-cache-retention-interval"



def layer(spec, block_size=32, **fields):
    return [spec, {"block_size": block_size, **fields}]


def attention(spec="FullAttentionSpec", block_size=32, heads=2, head=32, **fields):
    return layer(spec, block_size, num_kv_heads=heads, head_size=head, dtype="bfloat16", **fields)


def window(size, **fields):
    return attention("SlidingWindowSpec", sliding_window=size, **fields)


def state(block_size=32, **fields):
    # As large as a page of attention() of the same block.
    shapes = [[2, 32, block_size, 2]]
    return layer("MambaSpec", block_size, shapes=shapes, dtypes=["bfloat16"], mamba_cache_mode="align", **fields)


def latent(spec="MLAAttentionSpec", block_size=32, **fields):
    return layer(spec, block_size, num_kv_heads=1, head_size=128, dtype="bfloat16", **fields)


KINDS = {
    "gemma3": kind(GEMMA3),
    "gemma3-dense": kind(GEMMA3, INTERVAL, "None"),
    "gemma3-one-group": kind(GEMMA3, "--disable-hybrid-kv-cache-manager"),
    "gemma4": kind(GEMMA4),
    "gpt-oss": kind(GPT_OSS),
    # Without the variable, all its layers are one group of full attention.
    "llama4": kind(LLAMA4, environment={"VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE": "1"}),
    "qwen3-next": kind(QWEN3_NEXT),
    "driven-mamba2": driven([state(**MIXER2)] * 3 + [attention()], *ALIGN, blocks=160),
    "driven-mamba2-unit": driven(
        [state(64, **MIXER2), attention(block_size=64)], *ALIGN, "--prefix-match-unit", "16", block_size=64
    ),
    "driven-blocks": driven([window(96, head=128), attention(head=64)]),
    "driven-state-window": driven([state(), window(96), attention()], *ALIGN, blocks=120),
    # Not captured yet.
    "gemma3-interval": kind(GEMMA3, INTERVAL, "128"),
    "driven-windows": driven([window(64), window(160), attention()], blocks=120),
    "gemma3-chunks": kind(GEMMA3_GROUPS, "--max-num-batched-tokens", "80", blocks=160),
    "gemma3n": kind(GEMMA3N),
    "cohere2": kind(COHERE2),
    "jamba": kind(JAMBA),
    "qwen3-next-unit": kind(QWEN3_NEXT, "--prefix-match-unit", "16"),
    "lfm2": kind(LFM2),
    "mistral": kind(MISTRAL),
    "mistral-interval": kind(MISTRAL, INTERVAL, "128"),
    "driven-mamba2-interval": driven([state(**MIXER2), attention()], *ALIGN, INTERVAL, "128"),
    "driven-mamba2-dense": driven([state(**MIXER2), attention()], *ALIGN, INTERVAL, "None"),
    "driven-mamba2-only": driven([state(**MIXER2)], *ALIGN),
    "driven-latent": driven([state(), latent()], *ALIGN),
    "driven-sink": driven([window(96), attention("SinkFullAttentionSpec", sink_len=32)]),
}

# Layers of real kinds, to compare a run without a forward pass with their capture.
LAYERS = {"gemma3": [window(96), attention()]}

# Keys of a config that decide about cache groups.
ESSENTIAL = ("architectures", "num_hidden_layers", "layer_types", "sliding_window", "attention_chunk_size")


def essentials(config):
    return {key: config[key] for key in ESSENTIAL if key in config}
