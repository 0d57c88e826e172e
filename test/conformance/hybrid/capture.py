"""Capture cache events and cache hits of real vLLM engines with hybrid attention.

Run it with a Python that has vLLM (built for the CPU) installed:

    python capture.py KIND...     # kinds of models.py, or `all`
    python capture.py --list

For each kind it starts a vLLM server with random weights, subscribes to its cache
events, sends the prompts of workload.py one after the other, and writes
captures/KIND.jsonl.gz. The first record describes the engine. Each later record is
a message of cache events (its msgpack payload in base64) or a request with the cache
hit that the engine reported, in order of time.
"""

import argparse
import base64
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import zmq

import models
import workload

HERE = Path(__file__).resolve().parent
TOPIC = "kv-events"
START_SECONDS = 300
# A request's events follow its answer by one engine step.
QUIET_SECONDS = 0.25


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Engine:
    """A vLLM server of one kind, with a subscription to its cache events."""

    def __init__(self, kind, folder):
        self.kind = kind
        self.folder = Path(folder)
        self.url = f"http://127.0.0.1:{free_port()}"
        events = f"tcp://127.0.0.1:{free_port()}"
        model = self.folder / "model"
        model.mkdir()
        (model / "config.json").write_text(json.dumps(kind["config"]))
        config = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": events.replace("127.0.0.1", "*"), "topic": TOPIC}
        self.arguments = [*models.ARGUMENTS, *kind["arguments"]]
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
        command += ["--host", "127.0.0.1", "--port", self.url.rsplit(":", 1)[1], "--kv-events-config", json.dumps(config)]
        command += [*self.arguments, "--scheduler-cls", "engine_side.DescribedScheduler"]
        if kind.get("driven"):
            command += ["--distributed-executor-backend", "engine_side.NoForwardExecutor"]
        self.description = self.folder / "description.json"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PYTHONPATH": str(HERE),
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "CAPTURE_DESCRIPTION": str(self.description),
            **kind.get("environment", {}),
        }
        self.log = open(self.folder / "engine.log", "w")
        # A process group of its own, so that its workers end with it.
        self.process = subprocess.Popen(command, env=environment, stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True)
        self.socket = zmq.Context.instance().socket(zmq.SUB)
        self.socket.setsockopt_string(zmq.SUBSCRIBE, TOPIC)
        self.socket.set_hwm(0)
        self.socket.connect(events)

    def wait(self):
        """Waits until the server is healthy; returns the engine's own description."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise RuntimeError(f"the engine ended with {self.process.returncode}")
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=2)
                return json.loads(self.description.read_text())
            except OSError:
                time.sleep(0.5)
        raise RuntimeError("the engine was not healthy in time")

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as response:
            return json.loads(response.read())

    def messages(self):
        """Messages that arrive until none does for QUIET_SECONDS."""
        while self.socket.poll(QUIET_SECONDS * 1000):
            _, sequence, payload = self.socket.recv_multipart()
            yield {"events": base64.b64encode(payload).decode(), "seq": int.from_bytes(sequence, "big")}

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.socket.close(0)
        self.log.close()


def capture(name, logs):
    kind = models.KINDS[name]
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(kind, folder)
        try:
            description = engine.wait()
            header = {
                "kind": name,
                "driven": bool(kind.get("driven")),
                "arguments": engine.arguments,
                "config": models.essentials(kind["config"]),
                **description,
            }
            records = [header]
            for phase, prompt, max_tokens, answer in workload.prompts(header):
                body = {"model": models.NAME, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
                response = engine.post("/v1/completions", {**body, "ignore_eos": True, "return_token_ids": True})
                records.extend(engine.messages())
                details = response["usage"].get("prompt_tokens_details") or {}
                output = response["choices"][0]["token_ids"]
                answer.extend(output)
                cached = details.get("cached_tokens") or 0
                records.append({"request": {"phase": phase, "prompt": prompt, "cached_tokens": cached, "output": output}})
        finally:
            engine.kill()
            if logs:
                Path(logs).mkdir(parents=True, exist_ok=True)
                (Path(logs) / f"{name}.log").write_text((Path(folder) / "engine.log").read_text())
    path = HERE / "captures" / f"{name}.jsonl.gz"
    path.parent.mkdir(exist_ok=True)
    text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    return path, len(records)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--list", action="store_true", help="list kinds")
    parser.add_argument("--logs", help="folder to keep the engines' logs in")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(models.KINDS))
        return
    failed = 0
    for name in list(models.KINDS) if arguments.kinds == ["all"] else arguments.kinds:
        try:
            path, records = capture(name, arguments.logs)
            print(f"{name}: {records} records, {path.stat().st_size} bytes", flush=True)
        except Exception as error:
            failed += 1
            print(f"{name}: failed: {error}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
