"""Runs server processes for tests, soak tests and benchmarks: start, measure, stop, kill and restart."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from waystation.crypto.signing import KeyPair

__all__ = ["ServedNode", "ServedProcess", "free_port", "rss_kib"]

LISTENERS: Final = {"bhumi": "tls", "bsp": "tls", "lprp": "udp", "merk": "ws", "strata": "ws"}
"""The setting of each protocol that says where it listens."""
_STOP_S: Final = 30.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_given: Final[set[int]] = set()
"""Ports that ``free_port`` has returned."""


class ServedProcess:
    """A command that prints one line of JSON when it listens and ends in order on SIGTERM; any number of starts."""

    def __init__(
        self, *command: str, log: Path | None = None, cores: Collection[int] = (), ordered: bool = False
    ) -> None:
        """Describe it.

        Args:
            command: Its words.
            log: File to which its standard error is appended; shown when None.
            cores: Processors that it and all it starts may use; all when empty.
            ordered: Whether it reads orders from its standard input.
        """
        self.command = list(command)
        self.environment: Mapping[str, str] = {}
        """What its next start has beside our own environment."""
        self.on_end: Callable[[int], None] = lambda _code: None
        """Called with the exit code after each end that was waited for."""
        self.process: subprocess.Popen[str] | None = None
        self.ready: dict[str, Any] = {}
        """The line of its last start."""
        self._log_path = log
        self._cores = set(cores)
        self._stdin = subprocess.PIPE if ordered else None

    def start(self) -> Self:
        """Start, and return when it listens."""
        ours = os.sched_getaffinity(0)
        error = self._log_path.open("a") if self._log_path else None
        try:
            os.sched_setaffinity(0, self._cores or ours)  # inherited by all threads and processes of the server
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(
                self.command,
                stdin=self._stdin,
                stdout=pipe,
                stderr=error,
                text=True,
                env={**os.environ, **self.environment},
            )
        finally:
            os.sched_setaffinity(0, ours)
            if error is not None:
                error.close()
        line = self.read_line()
        assert line, self.log()[-4_000:]
        self.ready = json.loads(line)
        return self

    def address_of(self, name: str) -> str:
        """Return the address of a listener."""
        found: str = self.ready["listeners"][name]
        return found

    @property
    def public_key(self) -> bytes:
        """Its identity, as its last start said; zeros when it has none."""
        return bytes.fromhex(self.ready.get("node", {}).get("public_key", "")) or bytes(32)

    def order(self, *words: object) -> None:
        """Write a line to its standard input."""
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def read_line(self) -> str:
        """Return the next line that it prints."""
        assert self.process is not None
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    @property
    def pid(self) -> int:
        """Id of the process."""
        assert self.process is not None
        return self.process.pid

    @property
    def workers(self) -> list[int]:
        """Ids of the processes it has started."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def cpu_s(self) -> float:
        """Return the CPU seconds of the process and of those it started that still run."""
        return sum(_cpu_s(pid) for pid in (self.pid, *self.workers))

    def rss_kib(self) -> int:
        """Return the resident memory of the process."""
        return rss_kib(self.pid)

    def signal(self, number: int) -> None:
        """Send a signal, and do not wait."""
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> int:
        """Ask it to end; return its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> int:
        """End it as a power cut would, and wait for that."""
        self.signal(signal.SIGKILL)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end; return the exit code."""
        assert self.process is not None
        code = self.process.wait(_STOP_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.on_end(code)
        return code

    def close(self) -> None:
        """Make sure that nothing of it runs."""
        if self.running:
            self.kill()
        elif self.process is not None:
            self.wait()  # closes its pipes, also after a start that failed

    def log(self) -> str:
        """Return what it has written to its log since it was first started."""
        return self._log_path.read_text() if self._log_path and self._log_path.exists() else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ServedNode(ServedProcess):
    """``waystation serve`` with a home of its own."""

    def __init__(
        self,
        home: Path,
        only: str = "",
        *,
        key: KeyPair | None = None,
        tables: str = "",
        cores: Collection[int] = (),
        **settings: object,
    ) -> None:
        """Describe a node.

        Args:
            home: Its folder, made if absent.
            only: The one protocol that it has, without rate limits and without an admin port, on the same port at
                every start; all protocols when empty.
            key: Its identity; one of its own by default.
            tables: Configuration that is more than a setting, as TOML.
            cores: Processors that it may use.
            settings: Settings, as ``merk__ws="127.0.0.1:0"``; a sequence becomes a list.
        """
        self.home = Path(home)
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        super().__init__(log=self.home / "stderr.log", cores=cores)
        chosen = {name.replace("__", "."): value for name, value in settings.items()}
        if only:
            self._listener = f"{only}.{LISTENERS[only]}"
            alone = {f"{name}.enabled": False for name in LISTENERS if name != only}
            quiet = {"admin.listen": "", "admin.socket": "", "limits.enabled": False}
            chosen = alone | quiet | {self._listener: "127.0.0.1:0"} | chosen
        self.settings = chosen
        self._only = only
        self._tables = self.home / "node.toml" if tables else None
        if self._tables:
            self._tables.write_text(tables)
        if key is not None:
            key_file = self.home / "node.key"
            key_file.touch(mode=0o600)
            key_file.write_text(key.seed.hex() + "\n")

    def start(self) -> Self:
        """Start, and return when it listens."""
        self.command = [sys.executable, "-m", "waystation", "serve", "--home", str(self.home)]
        self.command += ["--config", str(self._tables)] if self._tables else []
        for name, value in self.settings.items():
            self.command += ["--set", f"{name}={_text(value)}"]
        super().start()
        if self._only and str(self.settings[self._listener]).endswith(":0"):
            self.settings[self._listener] = urlsplit(self.address_of(self._only)).netloc
        return self


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def rss_kib(pid: int) -> int:
    """Return the resident memory of a process."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") // 1_024


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def free_port() -> int:
    """Return a port of loopback that is free for TCP and UDP and that this process has not been given before.

    The kernel may offer a port again as soon as it is closed, and a node refuses two listeners on one port.
    """
    while True:
        with socket.socket() as stream, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
            stream.bind(("127.0.0.1", 0))
            port = int(stream.getsockname()[1])
            try:
                datagrams.bind(("127.0.0.1", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
        if port not in _given:
            _given.add(port)
            return port
