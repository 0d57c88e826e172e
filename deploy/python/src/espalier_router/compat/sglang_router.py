"""What frameworks import of ``sglang_router``: ``RouterArgs`` and ``launch_router``, which starts Espalier.

Flags are translated as ``espalier migrate --from sglang-router`` does; what has no counterpart is logged as a warning.

In one process, ``install()`` makes ``import sglang_router`` find this module. For every process of a job:

    export PYTHONPATH=$(python -m espalier_router.compat.sglang_router)
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from espalier_router._launch import LaunchError, Router, launch
from espalier_router._program import command

__all__ = [
    "RouterArgs",
    "__version__",
    "configuration",
    "install",
    "launch_router",
    "launch_server",
    "main",
    "parse_router_args",
]

logger = logging.getLogger(__name__)

# The builder of the wheel writes it, from the table that `espalier migrate` translates by.
_table = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))

#: The release of sglang-router whose interface this is; frameworks ask for it.
__version__: str = _table["version"]

#: Where frameworks run that have no key for their router.
PRIVATE_NETWORKS = ("127.0.0.0/8", "::1", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
#: Flags that have no prefix even where the others have one.
_UNPREFIXED = ("--worker-urls", "--host", "--port")
#: Flags that are said even at their defaults.
_SAID = ("--host", "--port", "--policy")
#: Flags of which each occurrence is one engine.
_REPEATED = ("--prefill", "--decode")


_TYPES = {"int": int, "float": float}


def _destination(flag: str) -> str:
    return flag[2:].replace("-", "_")


def _attribute(flag: str) -> str:
    return str(_table["flags"][flag].get("attribute", _destination(flag)))


def _pairs(words: Sequence[str]) -> dict[str, str]:
    """Several pairs may be one word."""
    return dict(part.split("=", 1) for word in words for part in word.split() if "=" in part)


def _bootstrap(words: Sequence[str]) -> tuple[str, int | None]:
    url, *port = words
    return url, None if not port or str(port[0]).lower() == "none" else int(port[0])


def _control_key(word: str) -> tuple[str, ...]:
    try:
        identity, name, role, key = word.split(":", 3)
    except ValueError:
        raise ValueError("--control-plane-api-keys: each is ID:NAME:ROLE:KEY") from None
    return identity, name, key, role.lower()


def _parsed(flag: str, value: Any) -> Any:
    """The form that an attribute has of what the command line has. What is an attribute's already stays as it is."""
    if _table["flags"][flag].get("mapping") and not isinstance(value, Mapping):
        return _pairs(value)
    if flag == "--prefill":
        return [tuple(item) if isinstance(item, tuple) else _bootstrap(item) for item in value]
    if flag == "--decode":
        return [item if isinstance(item, str) else item[0] for item in value]
    if flag == "--control-plane-api-keys":
        return [_control_key(item) if isinstance(item, str) else item for item in value]
    return value


class _Flags:
    """What ``RouterArgs`` does. Its fields are the flags of the table."""

    @classmethod
    def add_cli_args(
        cls, parser: argparse.ArgumentParser, use_router_prefix: bool = False, exclude_host_port: bool = False
    ) -> None:
        """Adds every flag to a parser, with ``--router-`` before most if asked to."""
        group = parser.add_argument_group("router", f"flags of sglang-router {__version__}, translated for Espalier")
        for flag, about in _table["flags"].items():
            if exclude_host_port and flag in ("--host", "--port"):
                continue
            name = f"--router-{flag[2:]}" if use_router_prefix and flag not in _UNPREFIXED else flag
            kind = _TYPES.get(about.get("type"), str)
            if about["values"] == "none":
                group.add_argument(name, action="store_true")
            elif flag in _REPEATED:
                group.add_argument(name, nargs=about.get("nargs", 1), action="append")
            elif about["values"] == "many":
                group.add_argument(name, type=kind, nargs=about.get("nargs", "*"), default=[])
            else:
                group.add_argument(name, type=kind, default=about.get("default"))

    @classmethod
    def from_cli_args(cls, args: argparse.Namespace, use_router_prefix: bool = False) -> RouterArgs:
        """Reads what ``add_cli_args`` has parsed, or attributes of that name."""
        given = vars(args)
        values = {}
        for flag in _table["flags"]:
            names = [_destination(flag), _attribute(flag)]
            for name in [f"router_{name}" for name in names] + names if use_router_prefix else names:
                # Programs copy the defaults of `dataclasses.fields`, of which a list has none.
                if given.get(name) not in (None, dataclasses.MISSING):
                    values[_attribute(flag)] = _parsed(flag, given[name])
                    break
        return RouterArgs(**values)

    def command_line(self) -> list[str]:
        """The flags that say the same: those that are not at their defaults, and where the router is."""
        words: list[str] = []
        for flag, about in _table["flags"].items():
            value = getattr(self, _attribute(flag))
            if value is None or value is False or value in ([], {}):
                continue
            if value == about.get("default") and flag not in _SAID:
                continue
            if about["values"] == "none":
                words.append(flag)
            elif about["values"] == "one":
                # Theirs takes IPv6 in brackets only.
                words.append(f"{flag}={str(value).strip('[]') if flag == '--host' else value}")
            elif isinstance(value, Mapping):
                words += [flag, *(f"{key}={text}" for key, text in value.items())]
            elif flag == "--control-plane-api-keys":
                words += [flag, *(":".join((name, title, role, key)) for name, title, key, role in value)]
            else:
                for item in value if flag in _REPEATED else [value]:
                    parts = [item] if isinstance(item, str) else item
                    words += [flag, *(str(part) for part in parts if part is not None)]
        return words


if TYPE_CHECKING:

    class RouterArgs(_Flags):
        """The flags of sglang-router as attributes: ``worker_urls``, ``host``, ``port``, ``policy``..."""

        def __init__(self, **values: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

else:

    def _field(flag: str, about: Mapping[str, Any]) -> tuple[str, type, Any]:
        if about["values"] == "many":
            kind = dict if about.get("mapping") else list
            return _attribute(flag), kind, dataclasses.field(default_factory=kind)
        # Some flags have a default that their attributes have not.
        default = None if "unset" in about else about.get("default")
        return _attribute(flag), Any, dataclasses.field(default=False if about["values"] == "none" else default)

    RouterArgs = dataclasses.make_dataclass(
        "RouterArgs",
        [_field(flag, about) for flag, about in _table["flags"].items()],
        bases=(_Flags,),
        # Where other processes find it when it is sent to them.
        namespace={"__module__": __name__},
    )


def configuration(args: RouterArgs) -> dict[str, Any]:
    """The configuration of Espalier for these flags. The router's address serves clients and control calls, as theirs does.

    Raises ``ValueError`` for flags that cannot be translated, such as a value that is none.
    """
    words = [*command("espalier"), "migrate", "--from", "sglang-router", "--json", "--", *args.command_line()]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise ValueError(f"sglang-router's flags cannot be translated:\n{done.stderr.strip()}")
    for line in done.stderr.splitlines():
        logger.warning("%s", line)
    config: dict[str, Any] = json.loads(done.stdout)["configuration"]
    rollouts = config["rollouts"] = config.pop("listen", {})
    if args.api_key is not None:
        rollouts["key"] = str(args.api_key)
    elif rollouts["host"] not in ("127.0.0.1", "::1", "localhost"):
        rollouts["trusted"] = list(PRIVATE_NETWORKS)
        networks = ", ".join(PRIVATE_NETWORKS)
        logger.warning("without --api-key, every address of a private network may control the engines: %s", networks)
    config["listen"] = {"host": "127.0.0.1", "port": 0}
    return config


def launch_router(args: argparse.Namespace | RouterArgs) -> Router:
    """Runs the router until it ends, or until this process gets SIGTERM or Ctrl-C.

    Raises ``LaunchError`` when it does not start, and ``ValueError`` as ``configuration`` does.
    """
    router_args = args if isinstance(args, RouterArgs) else RouterArgs.from_cli_args(args)
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)) if is_main else None
    try:
        # Engines may be added later.
        with launch(configuration(router_args), wait_ready=False, log=_print) as router:
            router.wait()
            return router
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def install() -> None:
    """Makes ``import sglang_router`` find this module, in this process and those that ``multiprocessing`` starts."""
    for name in [name for name in sys.modules if name.split(".")[0] == "sglang_router"]:
        del sys.modules[name]
    if _folder() not in sys.path:
        sys.path.insert(0, _folder())
    importlib.invalidate_caches()


def _folder() -> str:
    return str(Path(__file__).with_name("path"))


def parse_router_args(words: Sequence[str] | None = None) -> RouterArgs:
    """Reads a command line, by default this program's own."""
    return _read(_parser(), words)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sglang_router.launch_router")
    RouterArgs.add_cli_args(parser)
    return parser


def _read(parser: argparse.ArgumentParser, words: Sequence[str] | None) -> RouterArgs:
    return RouterArgs.from_cli_args(parser.parse_args(words))


def main(words: Sequence[str] | None = None) -> None:
    """``python -m sglang_router.launch_router``."""
    logging.basicConfig(format="%(levelname)s: %(message)s")
    parser = _parser()
    try:
        sys.exit(launch_router(_read(parser, words)).returncode)
    except (ValueError, LaunchError) as error:
        parser.exit(1, f"error: {error}\n")


def launch_server() -> None:
    """``python -m sglang_router.launch_server``, which would start engines too.

    Raises ``SystemExit`` with what to do instead.
    """
    sys.exit("error: Espalier starts no engines: run `python -m sglang.launch_server` for each of them, and then\n"
             "`python -m sglang_router.launch_router --worker-urls URL...`")


if __name__ == "__main__":
    print(_folder())
