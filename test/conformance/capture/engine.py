"""A vLLM server on the CPU with random weights, whose cache events are recorded."""

import base64
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import zmq

NAME = "tiny"
TOPIC = "kv-events"
START_SECONDS = 600
# A request's events follow its answer by one engine step.
QUIET_SECONDS = 0.25

# Arguments of every engine.
ARGUMENTS = [
    *("--served-model-name", NAME, "--load-format", "dummy", "--dtype", "bfloat16"),
    *("--enforce-eager", "--max-model-len", "1024", "--max-num-seqs", "4"),
    *("--enable-prefix-caching", "--enable-prompt-tokens-details"),
]


class Engine:
    """A server in a folder of its own, and a subscription to its cache events.

    `files` are the model's files by name, `driven` the layers and answers of
    no_forward.py.
    """

    def __init__(self, folder, files, arguments, environment=None, driven=None):
        self.folder = Path(folder)
        self.url = f"http://127.0.0.1:{free_port()}"
        events = f"tcp://127.0.0.1:{free_port()}"
        model = self.folder / "model"
        model.mkdir()
        for name, content in files.items():
            (model / name).write_text(content if isinstance(content, str) else json.dumps(content))
        config = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": events, "topic": TOPIC}
        config["endpoint"] = config["endpoint"].replace("127.0.0.1", "*")
        self.arguments = [*ARGUMENTS, *arguments]
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
        command += ["--host", "127.0.0.1", "--port", self.url.rsplit(":", 1)[1], "--kv-events-config", json.dumps(config)]
        command += [*self.arguments, "--scheduler-cls", "described_scheduler.DescribedScheduler"]
        if driven:
            command += ["--distributed-executor-backend", "no_forward.NoForwardExecutor"]
        self.description = self.folder / "description.json"
        variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")]),
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "CAPTURE_DESCRIPTION": str(self.description),
            "CAPTURE_DRIVEN": json.dumps(driven),
            **(environment or {}),
        }
        self.log = open(self.folder / "engine.log", "w")
        # A process group of its own, so that its workers end with it.
        self.process = subprocess.Popen(
            command, env=variables, stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True
        )
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
        with urllib.request.urlopen(request, timeout=300) as response:
            return json.loads(response.read())

    def messages(self):
        """Messages that arrive until none does for QUIET_SECONDS."""
        while self.socket.poll(QUIET_SECONDS * 1000):
            _, sequence, payload = self.socket.recv_multipart()
            yield {"events": base64.b64encode(payload).decode(), "seq": int.from_bytes(sequence, "big")}

    def completions(self, prompts):
        """Sends prompts of token ids; returns the records of their events and answers.

        `prompts` gives phase, prompt, most tokens, and a list that the
        answer's tokens are added to before the next prompt is taken.
        """
        records = []
        for phase, prompt, max_tokens, answer in prompts:
            body = {"model": NAME, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
            response = self.post("/v1/completions", {**body, "ignore_eos": True, "return_token_ids": True})
            records.extend(self.messages())
            details = response["usage"].get("prompt_tokens_details") or {}
            output = response["choices"][0]["token_ids"]
            answer.extend(output)
            cached = details.get("cached_tokens") or 0
            records.append({"request": {"phase": phase, "prompt": prompt, "cached_tokens": cached, "output": output}})
        return records

    def kill(self, log=None):
        """Ends the server; `log` is a path to keep its log at."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.socket.close(0)
        self.log.close()
        if log:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text((self.folder / "engine.log").read_text())


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def read(path):
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def write(path, records):
    text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
