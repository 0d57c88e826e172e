"""Tiny models of each kind of hybrid attention, by the keys of their real config.json."""

NAME = "tiny"

# Arguments of every engine.
ARGUMENTS = [
    *("--served-model-name", NAME, "--load-format", "dummy", "--dtype", "bfloat16", "--skip-tokenizer-init"),
    *("--enforce-eager", "--max-model-len", "1024", "--max-num-seqs", "4"),
    *("--enable-prefix-caching", "--enable-prompt-tokens-details"),
]

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


def kind(config, *arguments, blocks=96, block_size=32, **more):
    sizes = ("--num-gpu-blocks-override", str(blocks), "--block-size", str(block_size))
    return {"config": config, "arguments": [*sizes, *arguments], **more}


KINDS = {
    "gemma3": kind(GEMMA3),
}

# Keys of a config that decide about cache groups.
ESSENTIAL = ("architectures", "num_hidden_layers", "layer_types", "sliding_window", "attention_chunk_size")


def essentials(config):
    return {key: config[key] for key in ESSENTIAL if key in config}
