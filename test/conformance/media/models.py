"""Tiny vision models with a processor that is written here, not downloaded.

The tokenizer is a fixture's, given on the command line, with an image token added.
"""

import json
from pathlib import Path

TEXT = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-06,
    "torch_dtype": "bfloat16",
}
VISION = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
NORMAL = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}

# Content parts in their order, as the templates of vision models write them.
TEMPLATE = """\
{%- for message in messages %}<|im_start|>{{ message['role'] }}
{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}\
{% if part['type'] == 'text' %}{{ part['text'] }}{% elif 'video' in part['type'] %}VIDEO{% else %}IMAGE{% endif %}{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def llava(tokenizer, image):
    """36 placeholders an image, of any size."""
    vision = {**VISION, "model_type": "clip_vision_model", "projection_dim": 64, "image_size": 84, "patch_size": 14}
    size = {"size": {"shortest_edge": 84}, "crop_size": {"height": 84, "width": 84}}
    return {
        "config.json": {
            "architectures": ["LlavaForConditionalGeneration"],
            "model_type": "llava",
            "image_token_index": image,
            "image_seq_length": 36,
            "vision_feature_layer": -2,
            "vision_feature_select_strategy": "default",
            "projector_hidden_act": "gelu",
            "text_config": {**TEXT, "model_type": "llama", "vocab_size": tokenizer["size"]},
            "vision_config": vision,
            "torch_dtype": "bfloat16",
        },
        "preprocessor_config.json": {"image_processor_type": "CLIPImageProcessor", **size, **NORMAL},
        "processor_config.json": {
            "processor_class": "LlavaProcessor",
            "image_token": "<image>",
            "patch_size": 14,
            "num_additional_image_tokens": 1,
            "vision_feature_select_strategy": "default",
        },
        "chat_template.jinja": TEMPLATE.replace("IMAGE", "<image>"),
    }


def qwen2_vl(tokenizer, image):
    """As many placeholders as the image has squares of 28 pixels."""
    vision = {"depth": 2, "embed_dim": 64, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2, "patch_size": 14}
    ids = {name: tokenizer["added"][f"<|{token}|>"] for name, token in SPECIAL.items()}
    rope = {"rope_type": "default", "type": "mrope", "mrope_section": [4, 6, 6]}
    return {
        "config.json": {
            **TEXT,
            **ids,
            "architectures": ["Qwen2VLForConditionalGeneration"],
            "model_type": "qwen2_vl",
            "vocab_size": tokenizer["size"],
            "rope_scaling": rope,
            "vision_config": {**vision, "model_type": "qwen2_vl", "spatial_merge_size": 2, "temporal_patch_size": 2},
        },
        "preprocessor_config.json": {
            "image_processor_type": "Qwen2VLImageProcessor",
            "processor_class": "Qwen2VLProcessor",
            "min_pixels": 28 * 28,
            "max_pixels": 280 * 280,
            "patch_size": 14,
            "temporal_patch_size": 2,
            "merge_size": 2,
            **NORMAL,
        },
        "video_preprocessor_config.json": {
            "video_processor_type": "Qwen2VLVideoProcessor",
            "min_pixels": 28 * 28,
            "max_pixels": 140 * 140,
            "patch_size": 14,
            "temporal_patch_size": 2,
            "merge_size": 2,
            **NORMAL,
        },
        "chat_template.jinja": TEMPLATE.replace("IMAGE", vision_part("image")).replace("VIDEO", vision_part("video")),
    }


def vision_part(modality):
    return f"<|vision_start|><|{modality}_pad|><|vision_end|>"


SPECIAL = {
    "vision_start_token_id": "vision_start",
    "vision_end_token_id": "vision_end",
    "image_token_id": "image_pad",
    "video_token_id": "video_pad",
}

KINDS = {"llava": (llava, ["<image>"]), "qwen2-vl": (qwen2_vl, [f"<|{token}|>" for token in SPECIAL.values()])}


WITH_VIDEO = ("qwen2-vl",)


def files(name, folder):
    """The model's files by name, with the tokenizer of a folder."""
    build, special = KINDS[name]
    tokenizer = json.loads((Path(folder) / "tokenizer.json").read_text())
    first = 1 + max([*tokenizer["model"]["vocab"].values(), *(token["id"] for token in tokenizer["added_tokens"])])
    added = {token: first + index for index, token in enumerate(special)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer["added_tokens"] += [{"id": id, "content": token, **flags} for token, id in added.items()]
    about = {"size": -(-(first + len(special)) // 64) * 64, "added": added}
    settings = json.loads((Path(folder) / "tokenizer_config.json").read_text())
    settings.pop("chat_template", None)
    # Else a class of its own reads the vocabulary and leaves these tokens out.
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": settings, **build(about, added[special[0]])}
