"""Capture cache events and cache hits of real vLLM engines with hybrid attention.

Run it with a Python that has vLLM (built for the CPU) installed:

    python capture.py KIND...     # kinds of models.py, or `all`
    python capture.py --list

For each kind it starts a vLLM server with random weights, subscribes to its cache
events, sends the prompts of workload.py one after the other, and writes
captures/KIND.jsonl.gz. The first record describes the engine. Each later record is
a message of cache events (its msgpack payload in base64) or a request with the cache
hit that the engine reported, in order of time.

Kinds whose kernels the CPU build lacks run without a forward pass (no_forward.py);
`--check gemma3` shows that this changes neither events nor hits.
"""

import argparse
import base64
import sys
import tempfile
from pathlib import Path

import msgspec

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "capture"))

import models
import workload
from engine import Engine, read, write


def run(name, kind, prompts, log=None):
    """Runs an engine of a kind with the prompts; returns the records of a capture."""
    layers = kind.get("layers")
    driven = layers and {"layers": layers, "answers": kind.get("answers")}
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["--skip-tokenizer-init", *kind["arguments"]]
        engine = Engine(folder, {"config.json": kind["config"]}, arguments, kind.get("environment"), driven)
        try:
            description = engine.wait()
            model = {"layers": layers} if layers else {"config": models.essentials(kind["config"])}
            header = {"kind": name, "driven": bool(layers), "arguments": engine.arguments, **model, **description}
            return [header, *engine.completions(prompts(header))]
        finally:
            engine.kill(log)


def path_of(name):
    return HERE / "captures" / f"{name}.jsonl.gz"


def check(name, log=None):
    """Repeats a real capture with no forward pass; returns whether both are the same."""
    recorded = read(path_of(name))
    requests = [record["request"] for record in recorded if "request" in record]
    kind = {**models.KINDS[name], "layers": models.LAYERS[name], "answers": [request["output"] for request in requests]}
    prompts = [(request["phase"], request["prompt"], len(request["output"]), []) for request in requests]
    driven = run(name, kind, lambda header: prompts, log)
    return comparable(recorded[1:]) == comparable(driven[1:])


def comparable(records):
    """Events and requests in order. Hashes start from a random seed in each engine,
    so each is replaced by its rank.
    """
    ranks = {}

    def rank(value):
        return None if value is None else ranks.setdefault(value, len(ranks))

    result = []
    for record in records:
        if "request" in record:
            result.append(record["request"])
            continue
        for event in msgspec.msgpack.decode(base64.b64decode(record["events"]))[1]:
            hashes = [rank(value) for value in event.get("block_hashes", [])]
            result.append({**event, "block_hashes": hashes, "parent_block_hash": rank(event.get("parent_block_hash"))})
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--list", action="store_true", help="list kinds")
    parser.add_argument("--check", action="store_true", help="compare a real capture with the same run without a forward pass")
    parser.add_argument("--logs", help="folder to keep the engines' logs in")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(models.KINDS))
        return
    failed = 0
    for name in list(models.KINDS) if arguments.kinds == ["all"] else arguments.kinds:
        log = Path(arguments.logs, f"{name}.log") if arguments.logs else None
        try:
            if arguments.check:
                same = check(name, log)
                failed += not same
                print(f"{name}: {'same' if same else 'different'} without a forward pass", flush=True)
                continue
            records = run(name, models.KINDS[name], workload.prompts, log)
            write(path_of(name), records)
            print(f"{name}: {len(records)} records, {path_of(name).stat().st_size} bytes", flush=True)
        except (OSError, RuntimeError) as error:
            failed += 1
            print(f"{name}: failed: {error}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
