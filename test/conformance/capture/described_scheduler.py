"""What runs inside the captured engine: a scheduler that describes itself once."""

import json
import os
from pathlib import Path

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import get_kv_cache_spec_kind, get_kv_cache_spec_sliding_window
from vllm.version import __version__


class DescribedScheduler(Scheduler):
    """vLLM's scheduler on the CPU, which has no asynchronous scheduling there."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        Path(os.environ["CAPTURE_DESCRIPTION"]).write_text(json.dumps(describe(self)))


def describe(scheduler):
    config = scheduler.vllm_config
    cache = config.cache_config
    coordinator = scheduler.kv_cache_manager.coordinator
    return {
        "vllm_version": __version__,
        "groups": [describe_group(group) for group in scheduler.kv_cache_config.kv_cache_groups],
        "scheduler_block_size": scheduler.block_size,
        "hash_block_size": scheduler.hash_block_size,
        "partial_hash_hits": coordinator.enable_partial_hash_hits,
        "coordinator": type(coordinator).__name__,
        "num_blocks": scheduler.kv_cache_config.num_blocks,
        "retention_interval": coordinator.retention_interval,
        "cache_block_size": cache.block_size,
        "mamba_block_size": cache.mamba_block_size,
        "mamba_cache_mode": cache.mamba_cache_mode,
        "max_model_len": config.model_config.max_model_len,
        "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
    }


def describe_group(group):
    spec = group.kv_cache_spec
    fields = {
        "layers": len(group.layer_names),
        "spec": type(spec).__name__,
        "kind": get_kv_cache_spec_kind(spec).value,
        "block_size": spec.block_size,
        "page_size_bytes": spec.page_size_bytes,
        "window": get_kv_cache_spec_sliding_window(spec),
    }
    for name in ("attention_chunk_size", "mamba_cache_mode", "mamba_type", "tokens_per_state"):
        value = getattr(spec, name, None)
        if value is not None:
            fields[name] = value if isinstance(value, int) else str(value)
    if not spec.prefix_cacheable:
        fields["prefix_cacheable"] = False
    return fields
