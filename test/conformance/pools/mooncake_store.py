"""Capture what a Mooncake Store says of its keys, alone and behind vLLM.

Run it with a Python that has mooncake-transfer-engine (0.3.14) and, for engines, vLLM built for the CPU:

    python mooncake_store.py master|engines... [--master PATH] [--logs FOLDER]

`engines`: two vLLM servers with MooncakeStoreConnector get the prompts of
../hybrid/workload.py by turns, so that each fetches what the other has computed, from a
store that is too small for all; at the end its keys are removed. Before each prompt the
master's list of keys is read. `master`: a client puts and removes keys, puts more than
fit, leaves, and comes back to another master. The master's events are in both.
"""

import argparse
import base64
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "capture"), str(HERE.parent / "hybrid")]
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])

import workload
import zmq
from capture import LLAMA, SIZES
from engine import NAME, Engine, free_port, write

# Its least memory of an engine, and layers that fill it with 64 blocks.
SEGMENT_BYTES = 16 * 1024 * 1024
MODEL = {**LLAMA, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 8}
WAIT_SECONDS = 30


class Master:
    def __init__(self, binary, log):
        self.ports = [free_port() for _ in range(3)]
        self.binary = binary
        self.log = open(log, "w") if log else subprocess.DEVNULL
        self.known = set()
        self.events = zmq.Context.instance().socket(zmq.SUB)
        self.events.setsockopt_string(zmq.SUBSCRIBE, "")
        self.events.connect(f"tcp://127.0.0.1:{self.ports[1]}")
        self.start()

    def start(self):
        rpc, events, admin = self.ports
        flags = {
            "rpc_address": "127.0.0.1",
            "rpc_port": rpc,
            "metrics_host": "127.0.0.1",
            "metrics_port": admin,
            "enable_kv_events": "true",
            "kv_events_backend_id": "pool",
            "kv_events_bind_endpoint": f"tcp://127.0.0.1:{events}",
            "default_kv_lease_ttl": 100,
            "eviction_high_watermark_ratio": 0.8,
            "eviction_ratio": 0.2,
        }
        command = [self.binary, *(f"--{name}={value}" for name, value in flags.items())]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)
        self.until(lambda: self.keys() is not None, "a master that answers")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def keys(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[2]}/get_all_keys", timeout=5) as answer:
                return set(answer.read().decode().split())
        except OSError:
            return None

    def until(self, condition, what):
        end = time.monotonic() + WAIT_SECONDS
        while not condition():
            if time.monotonic() > end:
                raise RuntimeError(f"no {what}")
            time.sleep(0.1)

    def settled(self):
        """The keys once they no longer change."""
        before = None
        while (now := self.keys()) != before:
            before = now
            time.sleep(0.4)
        return now

    def records(self):
        """What changed in the list of keys since the last call, and the master's own events."""
        now = self.settled()
        added, removed = sorted(now - self.known), sorted(self.known - now)
        self.known = now
        if added or removed:
            yield {"keys": {"added": added, "removed": removed}}
        while self.events.poll(0):
            _, sequence, payload = self.events.recv_multipart()
            yield {"master": base64.b64encode(payload).decode(), "seq": int.from_bytes(sequence, "big")}


def key(number):
    """A key as vLLM's connector makes it."""
    return f"{NAME}@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@{number:064x}"


def run_master(master, folder, logs):
    """Phases of one client's work, each with what the list and the events then say."""
    from mooncake.store import MooncakeDistributedStore

    def join():
        store = MooncakeDistributedStore()
        address = f"127.0.0.1:{master.ports[0]}"
        assert store.setup("127.0.0.1", "P2PHANDSHAKE", SEGMENT_BYTES, SEGMENT_BYTES, "tcp", "", address) == 0
        return store

    records = [{"kind": "master"}]

    def phase(name):
        records.append({"phase": name})
        records.extend(master.records())

    def put(store, *numbers):
        for number in numbers:
            assert store.put(key(number), bytes(1024 * 1024)) == 0
            # Leases end after 100 ms; only then is an object evicted.
            time.sleep(0.2)

    store = join()
    put(store, 1, 2, 3)
    phase("put")
    put(store, 1)
    phase("put again")
    store.remove(key(1))
    phase("removed")
    put(store, *range(10, 40))
    phase("evicted")
    store.remove_all()
    phase("all removed")
    put(store, 50, 51)
    phase("put after that")
    store.close()
    phase("client gone")
    master.kill()
    master.start()
    phase("another master")
    store = join()
    put(store, 60, 61)
    phase("put at another master")
    store.close()
    return records


def start_engine(folder, master, name):
    config = folder / f"{name}.json"
    store = {"metadata_server": "P2PHANDSHAKE", "master_server_address": f"127.0.0.1:{master.ports[0]}", "protocol": "tcp"}
    store |= {"device_name": "", "global_segment_size": SEGMENT_BYTES, "local_buffer_size": SEGMENT_BYTES}
    config.write_text(json.dumps(store))
    transfer = {"kv_connector": "HostMooncakeStoreConnector", "kv_connector_module_path": "host_mooncake", "kv_role": "kv_both"}
    environment = {"MOONCAKE_CONFIG_PATH": str(config), "VLLM_HOST_IP": "127.0.0.1"}
    environment["LD_LIBRARY_PATH"] = os.environ.get("LD_LIBRARY_PATH", "")
    (folder / name).mkdir()
    arguments = ["--skip-tokenizer-init", *SIZES, "--kv-transfer-config", json.dumps(transfer)]
    return Engine(folder / name, {"config.json": MODEL}, arguments, environment)


def asks(master, engines, prompts, records):
    for at, one in enumerate(prompts):
        records.extend(master.records())
        for index, engine in enumerate(engines):
            records.extend({**message, "engine": index} for message in engine.messages())
        index = at % len(engines)
        for record in engines[index].completions([one]):
            records.append({**record, "engine": index})


def again(records, count):
    """The longest of the latest prompts once more."""
    requests = [record["request"]["prompt"] for record in records if "request" in record]
    return [("again", prompt, 1, []) for prompt in sorted(requests[-20:], key=len)[-count:]]


def run_engines(master, folder, logs):
    engines = [start_engine(folder, master, name) for name in ("first", "second")]
    try:
        header = {"kind": "mooncake", "arguments": engines[0].arguments, **engines[0].wait()}
        engines[1].wait()
        records = [header]
        asks(master, engines, workload.prompts(header), records)
        repeated = again(records, 4)
        post = urllib.request.Request(f"http://127.0.0.1:{master.ports[2]}/api/v1/remove_all", method="POST")
        urllib.request.urlopen(post, timeout=10).read()
        asks(master, engines, repeated, records)
        return records
    finally:
        for index, engine in enumerate(engines):
            engine.kill(logs and logs / f"{index}.log")


KINDS = {"master": ("mooncake-master", run_master), "engines": ("mooncake", run_engines)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="+", choices=KINDS)
    parser.add_argument("--master", help="path of mooncake_master")
    parser.add_argument("--logs", type=Path, help="folder to keep logs in")
    arguments = parser.parse_args()
    binary = arguments.master
    if not binary:
        import mooncake

        binary = str(Path(mooncake.__file__).parent / "mooncake_master")
    for kind in arguments.kinds:
        name, run = KINDS[kind]
        with tempfile.TemporaryDirectory() as folder:
            if arguments.logs:
                arguments.logs.mkdir(exist_ok=True)
            master = Master(binary, arguments.logs and arguments.logs / f"{name}.log")
            try:
                records = run(master, Path(folder), arguments.logs)
            finally:
                master.kill()
        write(HERE / "captures" / f"{name}.jsonl.gz", records)
        requests = [record["request"] for record in records if "request" in record]
        removed = sum(len(record["keys"]["removed"]) for record in records if "keys" in record)
        cached = sum(request["cached_tokens"] for request in requests)
        print(f"{name}: {len(requests)} requests, {cached} tokens cached, {removed} keys gone")


if __name__ == "__main__":
    main()
