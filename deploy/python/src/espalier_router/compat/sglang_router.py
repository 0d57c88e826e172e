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

__all__ = ["RouterArgs", "__version__", "configuration", "install", "launch_router", "main"]

logger = logging.getLogger(__name__)

# The builder of the wheel writes it, from the table that `espalier migrate` translates by.
_table = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))

#: The release of sglang-router whose interface this is; frameworks ask for it.
__version__: str = _table["version"]

#: Attributes that are not called as their flags are.
_ATTRIBUTES = {
    "--prefill": "prefill_urls",
    "--decode": "decode_urls",
    "--tls-cert-path": "server_cert_path",
    "--tls-key-path": "server_key_path",
}
#: Where frameworks run that have no key for their router.
PRIVATE_NETWORKS = ("127.0.0.0/8", "::1", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
#: Flags that have no prefix even where the others have one.
_UNPREFIXED = ("--worker-urls", "--host", "--port")
#: Flags of which each occurrence is one engine.
_REPEATED = ("--prefill", "--decode")


def _attribute(flag: str) -> str:
    return _ATTRIBUTES.get(flag, _destination(flag))


def _destination(flag: str) -> str:
    return flag[2:].replace("-", "_")


def _number(text: str) -> Any:
    """A number where the text is one, since programs read what they have set. ``007`` stays as it is."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if str(value) == text:
            return value
    return text


class _Flags:
    """What ``RouterArgs`` does. Its fields are the flags of the table."""

    @classmethod
    def add_cli_args(
        cls, parser: argparse.ArgumentParser, use_router_prefix: bool = False, exclude_host_port: bool = False
    ) -> None:
        """Adds every flag to a parser, with ``--router-`` before most if asked to."""
        group = parser.add_argument_group("router", f"flags of sglang-router {__version__}, translated for Espalier")
        for flag, values in _table["flags"].items():
            if exclude_host_port and flag in ("--host", "--port"):
                continue
            name = f"--router-{flag[2:]}" if use_router_prefix and flag not in _UNPREFIXED else flag
            if values == "none":
                group.add_argument(name, action="store_true")
            elif flag in _REPEATED:
                group.add_argument(name, nargs="+", action="append")
            elif values == "many":
                group.add_argument(name, nargs="*", default=[])
            else:
                group.add_argument(name, type=_number, default=_table["defaults"].get(flag))

    @classmethod
    def from_cli_args(cls, args: argparse.Namespace, use_router_prefix: bool = False) -> RouterArgs:
        """Reads what ``add_cli_args`` has parsed, or attributes of that name."""
        given = vars(args)
        values = {}
        for flag in _table["flags"]:
            names = [_destination(flag), _attribute(flag)]
            for name in [f"router_{name}" for name in names] + names if use_router_prefix else names:
                if given.get(name) is not None:
                    values[_attribute(flag)] = given[name]
                    break
        return RouterArgs(**values)

    def command_line(self) -> list[str]:
        """The flags that say the same."""
        words: list[str] = []
        for flag, values in _table["flags"].items():
            value = getattr(self, _attribute(flag))
            if value is None or value is False or value == [] or value == {}:
                continue
            if values == "none":
                words.append(flag)
            elif values == "one":
                words.append(f"{flag}={value}")
            elif isinstance(value, Mapping):
                words += [flag, *(f"{key}={text}" for key, text in value.items())]
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

    def _field(flag: str, values: str) -> tuple[str, type, Any]:
        if values == "many":
            return _attribute(flag), list, dataclasses.field(default_factory=list)
        default = False if values == "none" else _table["defaults"].get(flag)
        return _attribute(flag), Any, dataclasses.field(default=default)

    RouterArgs = dataclasses.make_dataclass(
        "RouterArgs",
        [_field(flag, values) for flag, values in _table["flags"].items()],
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
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # Engines may be added later.
    with launch(configuration(router_args), wait_ready=False, log=_print) as router:
        router.wait()
        return router


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


def main(words: Sequence[str] | None = None) -> None:
    """``python -m sglang_router.launch_router``."""
    logging.basicConfig(format="%(levelname)s: %(message)s")
    parser = argparse.ArgumentParser(prog="sglang_router.launch_router")
    RouterArgs.add_cli_args(parser)
    try:
        sys.exit(launch_router(RouterArgs.from_cli_args(parser.parse_args(words))).returncode)
    except (ValueError, LaunchError) as error:
        parser.exit(1, f"error: {error}\n")


if __name__ == "__main__":
    print(_folder())
