"""The installed wheel as a program of Python uses it. `test/deploy/wheel.test.ts` runs it, with no Node.js on PATH."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
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
