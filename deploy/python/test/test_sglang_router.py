"""`espalier_router.compat.sglang_router` as frameworks call sglang-router."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import multiprocessing
import os
import pickle
import socket
import subprocess
import sys
import time
import unittest
import urllib.error
import urllib.request
from typing import Any

import espalier_router
from espalier_router.compat import sglang_router as compat
from espalier_router.compat.sglang_router import RouterArgs


def run_router(args: Any) -> None:
    """As slime and miles have it, in a process of its own."""
    from sglang_router.launch_router import launch_router

    launch_router(args)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def ask(url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


def until(condition: Any) -> Any:
    deadline = time.monotonic() + 60
    while True:
        try:
            if found := condition():
                return found
        except (OSError, urllib.error.URLError):
            pass
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.1)


class Arguments(unittest.TestCase):
    def test_prefixed_flags_of_a_framework_become_attributes_and_the_same_flags_again(self) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("--host", default="the framework's own")
        RouterArgs.add_cli_args(parser, use_router_prefix=True, exclude_host_port=True)
        words = "--router-policy round_robin --router-balance-abs-threshold 0 --router-max-concurrent-requests -2"
        more = "--router-cache-threshold 0.5 --router-tls-cert-path c.pem --router-dp-aware --worker-urls http://a http://b"
        pairs = "--router-pd-disaggregation --router-prefill http://p 8998 --router-prefill http://q --router-decode http://d"
        args = RouterArgs.from_cli_args(parser.parse_args(f"{words} {more} {pairs}".split()), use_router_prefix=True)
        self.assertEqual((args.policy, args.balance_abs_threshold, args.max_concurrent_requests), ("round_robin", 0, -2))
        self.assertEqual((args.cache_threshold, args.dp_aware, args.server_cert_path), (0.5, True, "c.pem"))
        self.assertEqual((args.port, args.enable_igw, args.request_id_headers), (30000, False, []))
        args.host = "127.0.0.1"
        said = " ".join(args.command_line())
        for part in (
            "--worker-urls http://a http://b --host=127.0.0.1 --port=30000 --policy=round_robin",
            "--max-concurrent-requests=-2",
            "--pd-disaggregation --prefill http://p 8998 --prefill http://q --decode http://d",
        ):
            self.assertIn(part, said)
        self.assertEqual(pickle.loads(pickle.dumps(args)), args)

    def test_attributes_take_the_shapes_that_sglang_router_gives_them(self) -> None:
        args = RouterArgs(
            pd_disaggregation=True,
            prefill_urls=[("http://p", 8998), ("http://q", None)],
            decode_urls=["http://d"],
            selector={"app": "engine"},
            api_key="0123456789",
        )
        said = " ".join(args.command_line())
        self.assertIn("--prefill http://p 8998 --prefill http://q --decode http://d", said)
        self.assertIn("--selector app=engine", said)
        self.assertEqual(dataclasses.replace(args, port=1).port, 1)
        config = compat.configuration(dataclasses.replace(args, host="127.0.0.1", selector={}))
        self.assertEqual([engine["role"] for engine in config["engines"]], ["prefill", "prefill", "decode"])
        self.assertEqual(config["rollouts"], {"host": "127.0.0.1", "port": 30000, "key": "0123456789"})

    def test_a_parser_and_attributes_have_the_types_and_defaults_of_sglang_router(self) -> None:
        """Frameworks calculate with defaults, send parsers' values on, and copy the defaults of all fields."""
        parser = argparse.ArgumentParser()
        RouterArgs.add_cli_args(parser)
        values = vars(parser.parse_args([]))
        found = [values[name] for name in ("retry_max_retries", "cache_threshold", "prometheus_port", "selector", "decode")]
        self.assertEqual(found, [5, 0.3, 29000, [], None])
        args = RouterArgs()
        self.assertEqual((args.request_timeout_secs, args.prometheus_port, args.selector), (1800, None, {}))
        kinds = {action.dest: action.type for action in parser._actions}
        self.assertEqual((kinds["port"], kinds["cache_threshold"], kinds["api_key"]), (int, float, str))
        words = "--prefill http://p 8998 --prefill http://q none --decode http://d --selector app=a role=b"
        keys = "--control-plane-api-keys id:name:Admin:secret:1 --jwt-role-mapping A=admin --api-key 007 --host [::1]"
        args = RouterArgs.from_cli_args(parser.parse_args(f"{words} {keys}".split()))
        self.assertEqual((args.prefill_urls, args.decode_urls), ([("http://p", 8998), ("http://q", None)], ["http://d"]))
        self.assertEqual((args.selector, args.jwt_role_mapping), ({"app": "a", "role": "b"}, {"A": "admin"}))
        self.assertEqual(args.control_plane_api_keys, [("id", "name", "secret:1", "admin")])
        said = args.command_line()
        self.assertNotIn("1800", " ".join(said))
        self.assertIn("--host=::1", said)
        self.assertIn("id:name:admin:secret:1", said)
        self.assertEqual(RouterArgs.from_cli_args(parser.parse_args(said)).prefill_urls, args.prefill_urls)
        copied = argparse.Namespace(**{field.name: field.default for field in dataclasses.fields(RouterArgs)})
        self.assertEqual(RouterArgs.from_cli_args(copied), RouterArgs())
        with contextlib.redirect_stderr(io.StringIO()) as told, self.assertRaises(SystemExit):
            parser.parse_args(["--port", "no"])
        self.assertIn("argument --port: invalid int value", told.getvalue())

    def test_unknown_flags_are_refused_and_what_is_not_the_same_is_a_warning(self) -> None:
        with self.assertRaisesRegex(TypeError, "cach_threshold"):
            RouterArgs(cach_threshold=1)
        parser = argparse.ArgumentParser()
        RouterArgs.add_cli_args(parser)
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as told:
            parser.parse_args(["--no-such-flag"])
        self.assertIn("--no-such-flag", told.getvalue())
        with self.assertLogs(compat.logger, "WARNING") as logged:
            compat.configuration(RouterArgs(mini_lb=True))
        self.assertIn("--mini-lb: not translated", "\n".join(logged.output))
        self.assertIn("every address of a private network may control the engines", logged.output[-1])
        with self.assertRaisesRegex(ValueError, "port"):
            compat.configuration(RouterArgs(port="none"))


class Router(unittest.TestCase):
    def test_a_framework_that_imports_sglang_router_launches_espalier(self) -> None:
        compat.install()
        import sglang_router

        self.assertEqual(sglang_router.__version__, "0.3.2")
        port, admin = free_port(), free_port()
        # As the address of a node, on which frameworks start their router.
        args = RouterArgs(host="0.0.0.0", port=port, prometheus_port=admin, balance_abs_threshold=0, log_level="warn")
        process = multiprocessing.get_context("spawn").Process(target=run_router, args=(args,), daemon=True)
        process.start()
        url = f"http://127.0.0.1:{port}"
        until(lambda: ask(f"{url}/health"))
        with espalier_router.launch_engine_sim("--model", "tiny", "--port", "0") as sim:
            ask(f"{url}/workers", {"url": sim.urls[0]})
            until(lambda: json.loads(ask(f"{url}/workers"))["workers"][0]["is_healthy"])
            body = {"text": "hello", "sampling_params": {"max_new_tokens": 4}}
            self.assertIn("meta_info", ask(f"{url}/generate", body))
            process.terminate()
            process.join(30)
        self.assertEqual(process.exitcode, 0)
        with self.assertRaises(OSError):
            ask(f"{url}/health")

    def test_the_command_is_found_by_its_old_name_on_pythonpath(self) -> None:
        words = [sys.executable, "-m", "espalier_router.compat.sglang_router"]
        folder = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        done = subprocess.run(
            [sys.executable, "-m", "sglang_router.launch_router", "--port", "99999"],
            env={**os.environ, "PYTHONPATH": folder},
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"(?m)^error: listen\.port: ")
        self.assertNotIn("Traceback", done.stderr)
        done = subprocess.run(
            [sys.executable, "-m", "sglang_router.launch_server", "--model-path", "m"],
            env={**os.environ, "PYTHONPATH": folder},
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "^error: Espalier starts no engines: run `python -m sglang.launch_server`")


if __name__ == "__main__":
    unittest.main()
