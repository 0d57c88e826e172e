"""Drives SGLang's prefix cache with HiCache, on a CPU and without a forward pass.

Run it with a Python that can import SGLang 0.5.23. One that has vLLM needs only these:

    pip install --no-deps sglang==0.5.23 gguf ipython traitlets orjson pybase64 torchvision uvloop
    python hicache.py KIND...     # kinds below, or `all`

SGLang's own are the radix tree, matching, loads from host memory, allocators, evictions,
write policies, cache controller, transfer engine, and the events, their batches and their
encoding. Ours are the loop, which does for one request after the other what SGLang's
scheduler does, the answers, and what needs a GPU: pinned memory and the copies from and to
it. Each hit is checked to hold the keys of its prompt. The prompts are those of
../hybrid/workload.py, and captures are written as those of ../hybrid.
"""

import argparse
import base64
import random
import sys
from array import array
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "capture"), str(HERE.parent / "hybrid")]

import msgspec
import torch
import workload
from engine import write
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.managers.scheduler_components.kv_events_publisher import SchedulerKvEventsPublisher
from sglang.srt.mem_cache.allocation import alloc_paged_token_slots_decode, alloc_paged_token_slots_extend
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import InitLoadBackParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.common import checkpoint_kv_cache, release_kv_cache
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool
from sglang.srt.mem_cache.pool_host.base import host_memory_budget_scope
from sglang.srt.mem_cache.pool_host.common import ALLOC_MEMORY_FUNCS
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler
from sglang.version import __version__

MODEL_LENGTH = 1024
# Tokens of the device's memory.
DEVICE = 1280

# Policy, tokens per page, and tokens of the host's memory, to which SGLang adds a page.
KINDS = {
    # SGLang's default policy.
    "hicache-write-through": ("write_through", 32, 3072),
    "hicache-write-through-selective": ("write_through_selective", 32, 3072),
    "hicache-write-back": ("write_back", 32, 3072),
    # What finds no room in the host's memory is dropped.
    "hicache-little-memory": ("write_back", 32, 512),
    # SGLang fetches nothing where that brings fewer than 10 tokens.
    "hicache-small-pages": ("write_through", 4, 3072),
}


def backup(host, device_pool, host_indices, device_indices, io_backend):
    host.k_data_refs[0][host_indices] = host.device_k_buffers[0][device_indices]


def load(host, device_pool, host_indices, device_indices, layer_id, io_backend, *, is_draft=False):
    host.device_k_buffers[0][device_indices] = host.k_data_refs[0][host_indices]


ALLOC_MEMORY_FUNCS["cpu"] = lambda dims, *, dtype, **_: torch.zeros(dims, dtype=dtype)
MHATokenToKVPoolHost.backup_from_device_all_layer = backup
MHATokenToKVPoolHost.load_to_device_per_layer = load


class Recorder:
    """Keeps what SGLang's scheduler publishes, encoded as its publisher does."""

    def __init__(self, records):
        self.records = records
        self.encoder = msgspec.msgpack.Encoder()
        self.sequence = 0

    def publish(self, batch):
        payload = self.encoder.encode(batch)
        self.records.append({"events": base64.b64encode(payload).decode(), "seq": self.sequence})
        self.sequence += 1


class Engine:
    def __init__(self, policy, page_size, host):
        arguments = ServerArgs(
            model_path="dummy",
            device="cpu",
            page_size=page_size,
            enable_hierarchical_cache=True,
            hicache_ratio=host / DEVICE,
            hicache_write_policy=policy,
            hicache_mem_layout="layer_first",
        )
        set_global_server_args_for_scheduler(arguments)
        sizes = {"size": DEVICE, "dtype": torch.float32, "device": "cpu"}
        shape = {"page_size": page_size, "head_num": 1, "head_dim": 1, "layer_num": 1}
        memory = MHATokenToKVPool(**sizes, **shape, enable_memory_saver=False)
        self.keys = memory.get_key_buffer(0).view(-1)
        allocator = PagedTokenToKVPoolAllocator(**sizes, page_size=page_size, kvcache=memory, need_sort=False)
        self.rows = ReqToTokenPool(size=4, max_context_len=MODEL_LENGTH, device="cpu", enable_memory_saver=False)
        parameters = CacheInitParams(
            disable=False,
            req_to_token_pool=self.rows,
            token_to_kv_pool_allocator=allocator,
            page_size=page_size,
            enable_kv_cache_events=True,
            tree_components=(ComponentType.FULL,),
            tree_core_backend="python",
        )
        self.cache = UnifiedRadixCache(parameters)
        # Otherwise SGLang leaves 10 GiB of the machine's memory to others.
        with host_memory_budget_scope(1 << 30):
            self.cache.init_hicache(arguments, parameters)
        self.records = []
        metrics = {"send_metrics_from_scheduler": None, "get_stats": None}
        limits = {"max_running_requests": 4, "max_total_num_tokens": DEVICE}
        self.publisher = SchedulerKvEventsPublisher(kv_events_config=None, tree_cache=self.cache, **metrics, **limits)
        self.publisher.enable_kv_cache_events = True
        self.publisher.kv_event_publisher = Recorder(self.records)
        self.idle()

    def idle(self):
        """A turn of the scheduler without a request, in which copies are found to have ended."""
        self.cache.check_hicache_events()
        self.publisher.publish_kv_events()

    def run(self, prompt, answer):
        """Returns how much of the prompt was in the device's memory, and how much in the host's."""
        cache = self.cache
        parameters = SamplingParams(temperature=0, max_new_tokens=len(answer), ignore_eos=True)
        parameters.normalize(None)
        request = Req(str(len(self.records)), "", array("q", prompt), parameters)
        cache.check_hicache_events()
        request.init_next_round_input(cache)
        device = request.prefix_len
        # As PrefillAdder.add_one_req.
        lock = cache.lock(request.last_node)
        if request.needs_host_load_back():
            node = request.best_match_node
            host_lock = cache.inc_host_lock_ref(node).to_dec_params()
            loaded = cache.init_load_back(InitLoadBackParams(node, request.host_hit_length, req=request))
            cache.dec_host_lock_ref(node, host_lock)
            request.host_loaded_length, request.last_node = loaded
            request.prefix_len += request.host_loaded_length
            request.kv.cache_protected_len = request.prefix_len
        request.lock = cache.lock(request.last_node)
        cache.unlock(lock)
        cache.ready_to_load_host_cache()
        self.extend(request)
        self.check(request)
        # As the scheduler after each step.
        for step, token in enumerate(answer):
            if step:
                self.decode(request)
            request.output_ids.append(token)
            request.update_finish_state()
            if request.finished():
                release_kv_cache(request, cache, checkpoint=True)
            elif not step:
                checkpoint_kv_cache(request, cache)
            cache.flush_pending_backups()
            if not step:
                self.publisher.publish_kv_events()
            cache.check_hicache_events()
        if not request.finished():
            raise RuntimeError("the request did not end")
        self.idle()
        return device, request.host_loaded_length

    def extend(self, request):
        """As alloc_for_extend, then the keys of the tokens that a forward pass would compute."""
        prefix = self.cache.prefix_device_indices(request)
        start, end = request.prefix_len, len(request.origin_input_ids)
        self.rows.alloc([request])
        request.extend_end = end
        last = prefix[-1:] if len(prefix) else torch.tensor([-1])
        lengths = torch.tensor([start]), torch.tensor([end])
        places = alloc_paged_token_slots_extend(
            self.cache, lengths[0], lengths[0], lengths[1], lengths[1], last, end - start
        )
        self.rows.write((request.kv.req_pool_idx, slice(0, end)), torch.cat([prefix, places]).to(torch.int32))
        request.kv.kv_allocated_len = request.kv.kv_committed_len = end
        self.compute(request, start)

    def decode(self, request):
        """As alloc_for_decode, for one token."""
        length = request.kv.kv_committed_len
        row = self.rows.req_to_token[request.kv.req_pool_idx]
        longer = torch.tensor([length + 1])
        place = alloc_paged_token_slots_decode(self.cache, longer, longer, row[length - 1 : length])
        self.rows.write((request.kv.req_pool_idx, slice(length, length + 1)), place.to(torch.int32))
        request.kv.kv_allocated_len += 1
        request.kv.kv_committed_len += 1
        self.compute(request, length)

    def key_of(self, request):
        """Keys are sums of tokens, so that they depend on all tokens before, as in a model."""
        return torch.tensor([*request.origin_input_ids, *request.output_ids], dtype=torch.float32).cumsum(0)

    def compute(self, request, start):
        places = self.rows.req_to_token[request.kv.req_pool_idx, start : request.kv.kv_committed_len]
        self.keys[places.long()] = self.key_of(request)[start : request.kv.kv_committed_len]

    def check(self, request):
        """Whether the memory has the keys of the whole prompt."""
        places = self.rows.req_to_token[request.kv.req_pool_idx, : len(request.origin_input_ids)]
        if not torch.equal(self.keys[places.long()], self.key_of(request)):
            raise RuntimeError(f"{request.rid}: the memory has keys of another prompt")


def run(name, policy, page_size, host):
    engine = Engine(policy, page_size, host)
    header = {
        "kind": name,
        "driven": True,
        "sglang": __version__,
        "policy": policy,
        "device_tokens": DEVICE,
        "host_tokens": engine.cache.host_pool_group.size,
        "max_model_len": MODEL_LENGTH,
        "groups": [{"block_size": page_size, "window": None}],
    }
    draw = random.Random(47)
    # The same prompts for all sizes of pages.
    sizes = {**header, "scheduler_block_size": 32, "num_blocks": DEVICE // 32}
    for phase, prompt, max_tokens, answer in workload.prompts(sizes):
        answer.extend(draw.choice(workload.TOKENS) for _ in range(max_tokens))
        on_device, loaded = engine.run(prompt, answer)
        request = {"phase": phase, "prompt": prompt, "cached_tokens": on_device + loaded, "host_tokens": loaded, "output": answer}
        engine.records.append({"request": request})
    return [header, *engine.records]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="+")
    arguments = parser.parse_args()
    for name in list(KINDS) if arguments.kinds == ["all"] else arguments.kinds:
        records = run(name, *KINDS[name])
        write(HERE / "captures" / f"{name}.jsonl.gz", records)
        requests = [record["request"] for record in records if "request" in record]
        cached, host = (sum(request[key] for request in requests) for key in ("cached_tokens", "host_tokens"))
        print(f"{name}: {len(requests)} requests, {cached} tokens cached, {host} of them in host memory", flush=True)


if __name__ == "__main__":
    main()
