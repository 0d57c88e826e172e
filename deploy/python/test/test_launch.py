"""The installed wheel as a program of Python uses it. `test/deploy/wheel.test.ts` runs it, with no Node.js on PATH."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
import urllib.request
from pathlib import Path
from typing import Any

import espalier_router

FREE = {"listen": {"port": 0}, "admin": {"port": 0}, "drain": {"delay": "0ms"}}


def post(url: str, body: object) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def is_running(pid: int) -> bool:
    # A zombie has ended: whoever adopts orphans has not asked for its exit code yet.
    done = subprocess.run(["/bin/ps", "-o", "stat=", "-p", str(pid)], stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.strip() not in ("", "Z", "Z+", "Zs")


class Launch(unittest.TestCase):
    def setUp(self) -> None:
        self.sim = espalier_router.launch_engine_sim("--model", "tiny", "--tokenizer", "espalier-tiny", "--port", "0")
        self.addCleanup(self.sim.stop)

    def test_second_turn_is_cached_and_leaving_stops_the_router(self) -> None:
        lines: list[str] = []
        with espalier_router.launch({**FREE, "engines": self.sim.urls}, log=lines.append) as router:
            messages = [{"role": "user", "content": "What is kept behind the archive door? " * 30}]
            cached = []
            for _ in range(2):
                body = {"model": "tiny", "messages": messages, "max_tokens": 8}
                answer = post(f"{router.url}/v1/chat/completions", body)
                cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
                messages += [answer["choices"][0]["message"], {"role": "user", "content": "And then?"}]
            self.assertEqual(cached[0], 0)
            self.assertGreater(cached[1], 100)
            with urllib.request.urlopen(f"{router.admin_url}/metrics", timeout=10) as page:
                self.assertIn("espalier_ready 1", page.read().decode())
            self.assertIsNone(router.returncode)
            self.assertIsNone(router.rollouts_url)
            [file] = [json.loads(line)["file"] for line in lines if "configuration read" in line]
            self.assertTrue(Path(file).is_file())
        self.assertEqual(router.returncode, 0)
        self.assertFalse(Path(file).exists())
        self.assertIn('"msg":"stopped"', router.logs[-1])
        self.assertEqual(tuple(lines), router.logs)
        self.assertEqual(self.sim.stop(), 0)

    def test_a_file_flags_and_a_signal(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "espalier.yaml")
            file.write_text("rollouts: { port: 0 }\ndrain: { delay: 0ms }\n")
            router = espalier_router.launch(
                file, args=["--listen-port", "0", "--admin-port", "0"], env={"ESPALIER_LOG_LEVEL": "warn"}, wait_ready=False
            )
            self.assertRegex(router.rollouts_url or "", r"^http://127\.0\.0\.1:\d+$")
            self.assertFalse(any('"level":"info"' in line for line in router.logs))
            router.send_signal(signal.SIGTERM)
            self.assertEqual(router.wait(30), 0)
            self.assertTrue(file.exists())

    def test_errors_say_how_it_ended_and_why(self) -> None:
        with self.assertRaises(espalier_router.LaunchError) as wrong:
            espalier_router.launch({**FREE, "polcy": "random"})
        self.assertEqual(wrong.exception.returncode, 1)
        self.assertRegex(str(wrong.exception), r"espalier ended with code 1\n(.*\n)*error: polcy: .*did you mean policy")
        router = espalier_router.launch({**FREE, "engines": ["http://127.0.0.1:1"]}, wait_ready=False)
        with self.assertRaises(espalier_router.LaunchError) as late:
            router.wait_ready(1)
        self.assertRegex(str(late.exception), "^espalier was not ready after 1 s: .*engine")
        self.assertEqual(late.exception.returncode, -signal.SIGKILL)
        with self.assertRaisesRegex(espalier_router.LaunchError, "code 2\n.*--speed is a number"):
            espalier_router.launch_engine_sim("--speed", "fast")

    def test_wrong_arguments_say_what_is_expected_and_leave_no_file(self) -> None:
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(tempfile, "tempdir", folder):
            wrong: list[tuple[Any, dict[str, Any], str]] = [
                (5, {}, "config: a mapping .* or a path; got int"),
                ({"engines": {"a"}}, {}, "not set"),
                (FREE, {"args": "--log-level warn"}, r"args: a list of flags .*\['--log-level', 'warn'\]"),
                (FREE, {"log": "file.log"}, "log: a function"),
            ]
            for config, options, message in wrong:
                with self.assertRaisesRegex(TypeError, message):
                    espalier_router.launch(config, wait_ready=False, **options)
            self.assertEqual(os.listdir(folder), [])

    def test_an_error_goes_through_a_pool_of_processes(self) -> None:
        """An exception that cannot be unpickled breaks the pool, or blocks it for ever."""
        with self.assertRaises(espalier_router.LaunchError) as wrong:
            espalier_router.launch("none.yaml")
        again = pickle.loads(pickle.dumps(wrong.exception))
        self.assertEqual((str(again), again.logs, again.returncode), (str(wrong.exception), wrong.exception.logs, 1))

    def test_a_mapping_takes_paths_which_start_at_the_current_folder(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "hook.mjs").write_text("export const hooks = {};\n")
            Path(folder, "key").write_text("0123456789abcdef")
            self.addCleanup(os.chdir, os.getcwd())
            os.chdir(folder)
            config = {**FREE, "plugins": [Path("hook.mjs")], "admin": {"port": 0, "key": "${file:key}"}}
            with espalier_router.launch(config, args=["--processes", 1], wait_ready=False) as router:
                self.assertTrue(router.url)

    def test_a_log_function_that_is_slow_or_fails_keeps_no_line_back(self) -> None:
        block = threading.Event()
        self.addCleanup(block.set)
        seen: list[str] = []

        def log(line: str) -> None:
            seen.append(line)
            if len(seen) == 1:
                raise SystemExit
            block.wait()

        with contextlib.redirect_stderr(io.StringIO()) as told:
            with espalier_router.launch(FREE, log=log, wait_ready=False) as router:
                for _ in range(800):
                    with contextlib.suppress(OSError):
                        post(f"{router.admin_url}/admin/reload", {})
        # More than a pipe holds, and all of it came while the function was blocked.
        self.assertGreater(sum(map(len, router.logs)), 65_536)
        self.assertIn('"msg":"stopped"', router.logs[-1])
        self.assertEqual(len(seen), 2)
        self.assertEqual(told.getvalue().count("Traceback"), 1)

    def test_a_python_that_a_program_of_node_started_hands_no_channel_on(self) -> None:
        theirs = {"NODE_CHANNEL_FD": "3", "NODE_CHANNEL_SERIALIZATION_MODE": "json", "NODE_UNIQUE_ID": "1"}
        with unittest.mock.patch.dict(os.environ, theirs):
            with espalier_router.launch(FREE, wait_ready=False) as router:
                self.assertTrue(router.url)
        self.assertEqual(router.returncode, 0)

    def test_nothing_outlives_a_killed_parent_even_while_its_forks_live(self) -> None:
        parent = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("parent.py"))], stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(parent.kill)
        assert parent.stdout
        fork, *pids = (int(word) for word in parent.stdout.readline().split())
        self.addCleanup(os.kill, fork, signal.SIGKILL)
        self.assertEqual(len(pids), 4)
        self.assertTrue(all(is_running(pid) for pid in [fork, *pids]))
        parent.kill()
        parent.wait()
        parent.stdout.close()
        deadline = time.monotonic() + 20
        while (left := [pid for pid in pids if is_running(pid)]) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertEqual(left, [])
        self.assertTrue(is_running(fork))


if __name__ == "__main__":
    unittest.main()
