"""One node with all five protocols, whose disk and clock can be made to go wrong."""

import http.client
import resource
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Self

from soak.load import Load
from soak.shims.power_cut import forget_synced
from soak.shims.preload import Shims
from tools.served import LISTENERS, ServedNode, free_port

__all__ = ["FaultyNode"]

SHIMS = ("io_faults", "power_cut", "clock")
_STATUS_S = 10.0


class FaultyNode(ServedNode):
    """``waystation serve`` under the shims, at the same ports at every start; its log lies beside its home."""

    def __init__(self, folder: Path, loads: Sequence[Load]) -> None:
        """Describe a node.

        Args:
            folder: Where its home, log and shims go.
            loads: Whose settings it has.
        """
        self.admin_port = free_port()
        chosen = {f"{name}.{listener}": f"127.0.0.1:{free_port()}" for name, listener in LISTENERS.items()}
        settings: dict[str, object] = {"admin.listen": f"127.0.0.1:{self.admin_port}", "limits.enabled": False} | chosen
        for load in loads:
            settings |= load.settings
        super().__init__(folder / "home", tables="".join(load.tables for load in loads))
        self.settings = settings
        self._log_path = folder / "node.log"  # what cannot be written to a broken home must be read all the same
        self.shims = Shims(folder / "shims", self.home, *SHIMS)
        self.environment = self.shims.environment
        self.starts_count = 0

    def start(self) -> Self:
        """Start, and return when it listens."""
        self.starts_count += 1
        forget_synced(self.shims.synced)
        super().start()
        return self

    def close(self) -> None:
        """Make sure that nothing of it runs."""
        super().close()
        self.shims.close()

    @property
    def store(self) -> Path:
        """The file with everything it keeps."""
        return self.home / "store.sqlite"

    def errors(self) -> list[str]:
        """Return the last lines of its log that say what went wrong."""
        return [line for line in self.log().splitlines() if '"level": "info"' not in line][-3:]

    def files_count(self) -> int:
        """Return how many descriptors it has."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def limit_files(self, soft: int) -> int:
        """Let it have so many descriptors at once; return how many it might have before."""
        before, hard = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (soft, hard))
        return before

    def limit_memory(self, spare_bytes: int) -> int:
        """Let it have so much more address space than now; return how much more it might have before."""
        size = int(Path(f"/proc/{self.pid}/statm").read_text().split()[0]) * resource.getpagesize()
        before, hard = resource.prlimit(self.pid, resource.RLIMIT_AS)
        is_free = spare_bytes == resource.RLIM_INFINITY
        resource.prlimit(self.pid, resource.RLIMIT_AS, (spare_bytes if is_free else size + spare_bytes, hard))
        return resource.RLIM_INFINITY if before == resource.RLIM_INFINITY else before - size

    def ready_status(self) -> int:
        """Return the HTTP status of ``/readyz``; 0 when nobody answers."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=_STATUS_S)) as connection:
            try:
                connection.request("GET", "/readyz")
                return connection.getresponse().status
            except OSError:
                return 0
