"""Starts the programs of the wheel as child processes that never outlive this one."""

from __future__ import annotations

import http.client
import json
import os
import queue
import signal
import ssl
import subprocess
import tempfile
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, IO, Optional, TypeVar, Union
from urllib.parse import urlsplit

from espalier_router._program import command

Config = Union[Mapping[str, Any], "os.PathLike[str]", str, None]
Log = Optional[Callable[[str], object]]

#: Lines that ``logs`` keeps.
KEPT_LINES = 1_000
#: Lines that wait for a slow ``log``; further ones do not get there.
WAITING_LINES = 100_000
#: Lines that an error quotes.
QUOTED_LINES = 20
POLL_SECONDS = 0.02
#: Longest wait for the last lines of a program that has ended.
JOIN_SECONDS = 1

_running: weakref.WeakSet[Program] = weakref.WeakSet()


def _leave_to_parent() -> None:
    """A forked child must not hold the pipes whose end tells programs that this process is gone."""
    with open(os.devnull, "rb") as nothing:
        for program in list(_running):
            program._leave_to_parent(nothing.fileno())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


class LaunchError(RuntimeError):
    """A program ended, or was not ready in time. ``logs`` has its last lines, ``returncode`` how it ended."""

    def __init__(self, message: str, logs: Sequence[str], returncode: int | None) -> None:
        quoted = "\n".join(logs[-QUOTED_LINES:])
        super().__init__(f"{message}\n{quoted}" if quoted else message)
        self.logs = tuple(logs)
        self.returncode = returncode

    def __reduce__(self) -> tuple[Any, ...]:
        # Pools of processes send it to whoever called.
        return _unpickled, (type(self), self.args, self.__dict__)


#: How a program of Node.js finds the one that started it: a Python that one has started would hand them on.
_OF_PARENT = ("NODE_CHANNEL_FD", "NODE_CHANNEL_SERIALIZATION_MODE", "NODE_UNIQUE_ID")


def _surroundings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _OF_PARENT}


def _argument(value: object) -> str:
    """Flags take numbers and paths too."""
    return os.fsdecode(value) if isinstance(value, (bytes, os.PathLike)) else str(value)


class _Calls:
    """Calls a function of the user with each line, in a thread of its own: a slow one must not keep the log from being read."""

    def __init__(self, log: Callable[[str], object]) -> None:
        self._log = log
        self._lines: queue.Queue[str | None] = queue.Queue(WAITING_LINES)
        self._dropped = 0
        self._has_failed = False

    def add(self, line: str) -> None:
        try:
            if self._dropped:
                self._lines.put_nowait(f"espalier_router: {self._dropped} lines dropped: `log` is too slow")
                self._dropped = 0
            self._lines.put_nowait(line)
        except queue.Full:
            self._dropped += 1

    def end(self) -> None:
        self._lines.put(None)

    def run(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._log(line)
            except BaseException:
                if not self._has_failed:
                    traceback.print_exc()
                self._has_failed = True


def _unpickled(kind: type[LaunchError], args: tuple[Any, ...], state: dict[str, Any]) -> LaunchError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


Self = TypeVar("Self", bound="Program")


class Program:
    """A running program. Leaving its ``with`` block stops it.

    It holds the other end of the program's standard input: when this process is gone, however it ended, the program ends.
    """

    _name: str

    def __init__(self, arguments: Sequence[object], env: Mapping[str, object] | None, log: Log, timeout: float) -> None:
        if log is not None and not callable(log):
            raise TypeError(f"log: a function that gets each line, such as print; got {type(log).__name__}")
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._addresses: dict[str, Any] = {}
        # Ctrl-C in a terminal goes to this process alone, which decides when the program stops.
        apart: dict[str, Any] = (
            {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}  # type: ignore[attr-defined,unused-ignore]
            if os.name == "nt"
            else {"start_new_session": True}
        )
        self._process = subprocess.Popen(
            [*command(self._name), *map(_argument, arguments), "--json", "--exit-with-stdin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**_surroundings(), **{name: str(value) for name, value in (env or {}).items()}},
            **apart,
        )
        _running.add(self)
        self._calls = _Calls(log) if log else None
        work: list[tuple[Callable[[], None], str]] = [
            (lambda: self._read(self._process.stdout, self._announce), "addresses"),
            (lambda: self._read(self._process.stderr, self._keep), "log"),
        ]
        if self._calls:
            work.append((self._calls.run, "log function"))
        self._threads = [
            threading.Thread(target=run, daemon=True, name=f"{self._name} {what}") for run, what in work
        ]
        try:
            for thread in self._threads:
                thread.start()
            self._until(lambda: None if self._addresses else "", "listening", timeout)
        except BaseException:
            self.kill()
            raise

    def _read(self, pipe: IO[bytes] | None, use: Callable[[str], None]) -> None:
        assert pipe
        with pipe:
            for line in pipe:
                use(line.decode("utf-8", "replace").rstrip("\r\n"))
        if self._calls and use == self._keep:
            self._calls.end()

    def _announce(self, line: str) -> None:
        if not self._addresses:
            self._addresses = json.loads(line)

    def _keep(self, line: str) -> None:
        self._lines.append(line)
        if self._calls:
            self._calls.add(line)

    def _join(self) -> None:
        """Waits for the last lines, unless the log function is slow or itself the caller."""
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(timeout=JOIN_SECONDS)

    def _let_go(self) -> None:
        if self._process.stdin:
            with suppress(OSError):
                self._process.stdin.close()

    def _leave_to_parent(self, nothing: int) -> None:
        """In a forked child: a full pipe that nobody reads would keep the program."""
        self._let_go()
        for pipe in (self._process.stdout, self._process.stderr):
            # Closed, its number would be the next file's, which a reader of the parent's state might close.
            with suppress(OSError, ValueError):
                if pipe:
                    os.dup2(nothing, pipe.fileno(), inheritable=False)

    def _until(self, missing: Callable[[], str | None], state: str, timeout: float) -> None:
        """Polls until nothing is missing. A program that gets there too late is ended."""
        deadline = time.monotonic() + timeout
        while True:
            code = self.returncode
            why = missing()
            if why is None:
                return
            if code is not None or time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)
        self.kill()
        how = f"was not {state} after {timeout:g} s{why and ': '}{why}" if code is None else f"ended with code {code}"
        raise LaunchError(f"{self._name} {how}", self.logs, self.returncode)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; ``None`` while it runs."""
        return self._process.poll()

    @property
    def logs(self) -> tuple[str, ...]:
        """The last lines of its standard error, at most 1,000."""
        return tuple(self._lines)

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end, and returns the exit code.

        Raises ``subprocess.TimeoutExpired`` after ``timeout`` seconds.
        """
        code = self._process.wait(timeout)
        self._let_go()
        self._join()
        return code

    def send_signal(self, number: int) -> None:
        """Sends a signal; does nothing when it has ended."""
        self._process.send_signal(number)

    def stop(self, timeout: float = 30) -> int:
        """Stops it as Ctrl-C does: answers in flight end first. After ``timeout`` seconds it is killed.

        Returns the exit code. Send ``signal.SIGTERM`` to wait for load balancers too (``drain.delay``).
        """
        if self.returncode is None:
            if os.name == "nt":
                self._let_go()
            else:
                self.send_signal(signal.SIGINT)
        try:
            return self.wait(timeout)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """Ends it at once, and returns the exit code."""
        self._process.kill()
        return self.wait()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Router(Program):
    """A running router: ``espalier serve``."""

    _name = "espalier"

    def __init__(
        self, config: Config, args: Sequence[object], env: Mapping[str, object] | None, log: Log, timeout: float
    ) -> None:
        if isinstance(args, str):
            raise TypeError(f"args: a list of flags and their values, such as {args.split()}; got a str")
        flags: list[object] = []
        self._forget_file: Callable[[], object] = lambda: None
        if isinstance(config, Mapping):
            path = _written(config)
            # At the latest when this process exits, since it may hold keys.
            self._forget_file = weakref.finalize(self, _remove, path, os.getpid())
            flags = ["--config", path, "--config-folder", os.getcwd()]
        elif isinstance(config, (str, bytes, os.PathLike)):
            flags = ["--config", config]
        elif config is not None:
            raise TypeError(f"config: a mapping with the keys of espalier.yaml, or a path; got {type(config).__name__}")
        try:
            super().__init__(["serve", *flags, *args], env, log, timeout)
        except BaseException:
            self._forget_file()
            raise

    def wait(self, timeout: float | None = None) -> int:
        code = super().wait(timeout)
        self._forget_file()
        return code

    @property
    def url(self) -> str:
        """Where clients reach it."""
        return str(self._addresses["url"])

    @property
    def admin_url(self) -> str:
        """Where operators and Prometheus reach it; with several processes, the first one."""
        return str(self._addresses["adminUrl"])

    @property
    def rollouts_url(self) -> str | None:
        """Where RL frameworks reach it; ``None`` when ``rollouts`` has no port."""
        url = self._addresses["rolloutsUrl"]
        return None if url is None else str(url)

    def wait_ready(self, timeout: float = 30) -> None:
        """Waits until a request would find an engine.

        Raises ``LaunchError`` when it ends or is not ready after ``timeout`` seconds; the router has ended then.
        """
        self._until(self._not_ready, "ready", timeout)

    def _not_ready(self) -> str | None:
        address = urlsplit(self.admin_url)
        host, port = address.hostname or "", address.port
        connection = (
            # Its own child, which may have a certificate for another name.
            http.client.HTTPSConnection(host, port, timeout=5, context=ssl._create_unverified_context())
            if address.scheme == "https"
            else http.client.HTTPConnection(host, port, timeout=5)
        )
        try:
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            body = json.loads(answer.read())
            return None if answer.status == 200 else " ".join(body["reasons"])
        except (OSError, http.client.HTTPException, ValueError) as error:
            return f"{self.admin_url} does not answer: {error}"
        finally:
            connection.close()


class EngineSim(Program):
    """Running simulated engines: ``espalier-engine-sim``."""

    _name = "espalier-engine-sim"

    @property
    def urls(self) -> list[str]:
        """An address for each engine, in order."""
        return [str(engine["url"]) for engine in self._addresses["engines"]]


def _written(config: Mapping[str, Any]) -> str:
    """The configuration as a file that this user alone may read, since it may hold keys. Values may be paths."""
    text = json.dumps(config, default=os.fspath)
    handle, path = tempfile.mkstemp(prefix="espalier-", suffix=".json")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def _remove(path: str, owner: int) -> None:
    # A fork that ends leaves it to its parent.
    if os.getpid() == owner:
        with suppress(OSError):
            os.unlink(path)


def launch(
    config: Config = None,
    *,
    args: Sequence[object] = (),
    env: Mapping[str, object] | None = None,
    wait_ready: bool = True,
    timeout: float = 30,
    log: Log = None,
) -> Router:
    """Starts a router.

    ``config`` is a mapping with the keys of ``espalier.yaml``, whose relative paths start at the current folder; the path of
    such a file; or ``None`` for what ``espalier serve`` takes by itself. ``args`` are flags of ``espalier serve``, ``env`` is added to the environment, and ``log`` gets each line
    of the log from a thread. Port 0 takes a free port; ``Router.url`` names it.

    Without ``wait_ready`` it returns as soon as the router listens, as it must where engines are added later.

    Raises ``LaunchError`` with the last lines of the log when the router ends, or does not listen or is not ready after
    ``timeout`` seconds.
    """
    router = Router(config, args, env, log, timeout)
    if wait_ready:
        router.wait_ready(timeout)
    return router


def launch_engine_sim(
    *args: object, env: Mapping[str, object] | None = None, timeout: float = 30, log: Log = None
) -> EngineSim:
    """Starts simulated engines with the flags of ``espalier-engine-sim``, at free ports unless ``--port`` is one of them.

    Raises ``LaunchError`` when they end, or do not listen after ``timeout`` seconds.
    """
    return EngineSim(args, env, log, timeout)
