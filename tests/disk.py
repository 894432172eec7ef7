"""A disk of a test's own, to be filled."""

import contextlib
import subprocess

__all__ = ["fill", "small_disk"]


@contextlib.contextmanager
def small_disk(folder, mib):
    """Mount a file system of so many MiB; only root may."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder):
    """Take every byte that is free; return the file that has them."""
    stuffing = folder / "stuffing"
    with contextlib.suppress(OSError), stuffing.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4_096))
    return stuffing
