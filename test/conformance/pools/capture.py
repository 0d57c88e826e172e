"""Capture cache events and cache hits of vLLM with KV caches outside its own.

Run it with a Python that has vLLM (built for the CPU) and, for its kinds, LMCache:

    python capture.py KIND...     # kinds below, or `all`

Each kind is a vLLM server with random weights and few blocks. The prompts are those of
../hybrid/workload.py, one after the other, so that what leaves the engine's own cache
comes back from the other one. Captures are written as those of ../hybrid.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "capture"), str(HERE.parent / "hybrid")]
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])

import workload
from engine import NAME, Engine, free_port, write

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "bfloat16",
}
# Two layers, keys and values, 2 heads of 32 in two bytes each, 32 tokens.
BLOCK_BYTES = 2 * 2 * 2 * 32 * 2 * 32
SIZES = ("--num-gpu-blocks-override", "40", "--block-size", "32")


def offloading(blocks, **settings):
    extra = {
        "spec_name": "HostOffloadingSpec",
        "spec_module_path": "host_offload",
        "cpu_bytes_to_use": blocks * BLOCK_BYTES,
        **settings,
    }
    return connector("OffloadingConnector", extra)


def connector(name, extra, **more):
    config = {"kv_connector": name, "kv_role": "kv_both", "kv_connector_extra_config": extra, **more}
    return {"arguments": [*SIZES, "--kv-transfer-config", json.dumps(config)]}


def lmcache(*arguments):
    port = free_port()
    # The server reads and writes the engine's memory, as it does where engines have GPUs.
    extra = {"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": port, "lmcache.mp.mp_transfer_mode": "lmcache_driven"}
    server = ["-m", "lmcache.v1.multiprocess.server", "--host", "127.0.0.1", "--port", str(port), "--chunk-size", "64"]
    server += ["--prometheus-port", str(free_port()), "--l1-size-gb", "0.0015", "--no-l1-use-lazy"]
    server += ["--supported-transfer-mode", "auto", "--eviction-policy", "LRU", *arguments]
    return {**connector("LMCacheMPConnector", extra), "server": server}


KINDS = {
    # Blocks leave both caches.
    "offloading": offloading(96, self_describing_kv_events=True),
    # The default: events name blocks by their hash only.
    "offloading-hashes": offloading(96),
    "offloading-chunks": offloading(96, self_describing_kv_events=True, block_size=64),
    "offloading-answers": offloading(96, self_describing_kv_events=True, offload_prompt_only=False),
    # LMCache's server, with room for 48 chunks of 64 tokens.
    "lmcache": lmcache(),
}


def first_messages(engine):
    """Asks until the subscription is there, with prompts of tokens that no other prompt has."""
    for token in range(400, 440):
        engine.post("/v1/completions", {"model": NAME, "prompt": [token] * 33, "max_tokens": 1})
        if messages := list(engine.messages()):
            return messages
    raise RuntimeError("the engine publishes no events")


@contextmanager
def serving(arguments, log):
    """Runs the program that keeps the blocks, if there is one besides the engine."""
    if not arguments:
        yield
        return
    variables = {**os.environ, "LMCACHE_TRACK_USAGE": "false", "HF_HUB_OFFLINE": "1"}
    output = open(log.with_suffix(".server.log"), "w") if log else subprocess.DEVNULL
    process = subprocess.Popen([sys.executable, *arguments], env=variables, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def run(name, kind, log=None):
    with tempfile.TemporaryDirectory() as folder, serving(kind.get("server"), log):
        engine = Engine(folder, {"config.json": LLAMA}, ["--skip-tokenizer-init", *kind["arguments"]])
        try:
            description = engine.wait()
            header = {"kind": name, "arguments": engine.arguments, **description}
            return [header, *first_messages(engine), *engine.completions(workload.prompts(header))]
        finally:
            engine.kill(log)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="+")
    parser.add_argument("--logs", help="folder to keep the engines' logs in")
    arguments = parser.parse_args()
    for name in list(KINDS) if arguments.kinds == ["all"] else arguments.kinds:
        records = run(name, KINDS[name], arguments.logs and Path(arguments.logs) / f"{name}.log")
        write(HERE / "captures" / f"{name}.jsonl.gz", records)
        requests = [record["request"] for record in records if "request" in record]
        cached = sum(request["cached_tokens"] for request in requests)
        print(f"{name}: {len(requests)} requests, {cached} tokens cached", flush=True)


if __name__ == "__main__":
    main()
