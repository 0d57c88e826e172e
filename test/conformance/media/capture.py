"""Capture cache events and cache hits of a real vLLM engine that is sent images.

Run it with a Python that has vLLM (built for the CPU) installed; qwen2-vl also
needs torchvision:

    python capture.py --tokenizer FOLDER KIND...     # kinds of models.py

FOLDER has tokenizer.json and tokenizer_config.json of a ChatML model. The format of
captures/KIND.jsonl.gz is that of ../hybrid/capture.py; a request also has its body
and the engine's prompt ids. `render` records are answers of the engine's renderer.
"""

import argparse
import functools
import sys
import tempfile
import threading
import urllib.error
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "capture"))

import models
import workload
from engine import NAME, Engine, write

ARGUMENTS = [
    *("--block-size", "32", "--num-gpu-blocks-override", "96", "--limit-mm-per-prompt", '{"image":4}'),
    # Off by default: the renderer, and arguments of the processor in a request.
    *("--enable-scale-out", "--trust-request-mm-kwargs"),
]
CHAT = "/v1/chat/completions"


class Pictures:
    """Serves bytes over HTTP, for prompts that name a picture by its URL."""

    def __init__(self):
        contents = self.contents = {}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("content-type", "image/png")
                self.end_headers()
                self.wfile.write(contents[self.path])

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def serve(self, content):
        path = f"/{len(self.contents)}.png"
        self.contents[path] = content
        return f"http://127.0.0.1:{self.server.server_port}{path}"


@functools.cache
def video(seed):
    """A short video of grey pictures, from a seed."""
    import cv2
    import numpy

    with tempfile.NamedTemporaryFile(suffix=".mp4") as file:
        writer = cv2.VideoWriter(file.name, cv2.VideoWriter_fourcc(*"mp4v"), 4, (84, 84))
        for frame in range(8):
            writer.write(numpy.full((84, 84, 3), (seed * 50 + frame * 5) % 256, numpy.uint8))
        writer.release()
        return Path(file.name).read_bytes()


def run(name, tokenizer, log=None):
    pictures = Pictures()
    files = models.files(name, tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(folder, files, ARGUMENTS)
        try:
            header = {"kind": name, "driven": False, "arguments": engine.arguments}
            model = {"config": files["config.json"], "preprocessor": files["preprocessor_config.json"]}
            records = [{**header, **model, **engine.wait()}]
            rendered = set()
            for phase, chat, answer in workload.chats(pictures.serve, video if name in models.WITH_VIDEO else None):
                body = {"model": NAME, "temperature": 0, **chat}
                if phase not in rendered:
                    rendered.add(phase)
                    records.append({"render": {"phase": phase, "body": body, **render(engine, body)}})
                try:
                    response = engine.post(CHAT, {**body, "ignore_eos": True, "return_token_ids": True})
                except urllib.error.HTTPError as error:
                    records.append({"request": {"phase": phase, "body": body, "status": error.code, "error": error.read().decode()}})
                    continue
                records.extend(engine.messages())
                usage = response["usage"]
                choice = response["choices"][0]
                answer["text"] = choice["message"]["content"] or ""
                result = {
                    "prompt": response["prompt_token_ids"],
                    "cached_tokens": (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
                    "output": choice["token_ids"],
                }
                records.append({"request": {"phase": phase, "body": body, **result, "usage": usage}})
            return records
        finally:
            engine.kill(log)


def render(engine, body):
    """The renderer's answer, with the length of pixels instead of pixels."""
    try:
        response = engine.post(f"{CHAT}/render", body)
    except urllib.error.HTTPError as error:
        return {"status": error.code, "error": error.read().decode()}
    features = response.get("features") or {}
    for modality, items in (features.get("kwargs_data") or {}).items():
        features["kwargs_data"][modality] = [item and {"length": len(item)} for item in items]
    return {"status": 200, "response": response}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="+")
    parser.add_argument("--tokenizer", required=True, help="folder with tokenizer.json and tokenizer_config.json")
    parser.add_argument("--logs", help="folder to keep the engines' logs in")
    arguments = parser.parse_args()
    failed = 0
    for name in arguments.kinds:
        path = HERE / "captures" / f"{name}.jsonl.gz"
        log = Path(arguments.logs, f"{name}.log") if arguments.logs else None
        try:
            records = run(name, arguments.tokenizer, log)
            write(path, records)
            print(f"{name}: {len(records)} records, {path.stat().st_size} bytes", flush=True)
        except (OSError, RuntimeError) as error:
            failed += 1
            print(f"{name}: failed: {error}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
