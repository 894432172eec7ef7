"""Bounded reader for the big-endian fields of received bytes.

The decoders of Bhumi and BSP read every message with one: bytes go in, integers and slices come out, ``ShortError``
when they end too soon. Every read checks the remaining length first. A length field from the network therefore cannot
cause a read beyond the frame.
"""

from waystation.core.errors import RemoteError

__all__ = ["Cursor", "ShortError"]


class ShortError(RemoteError):
    """A structure ends before its fields do.

    Attributes:
        wanted: Bytes the field needs.
        left: Bytes that were left.
    """

    def __init__(self, wanted: int, left: int) -> None:
        super().__init__(f"field of {wanted} bytes, {left} left")
        self.wanted = wanted
        self.left = left


class Cursor:
    """Reads big-endian fields from the front of ``data``."""

    __slots__ = ("_data", "_end", "_offset")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0
        self._end = len(data)

    @property
    def left(self) -> int:
        """Bytes that have not been read."""
        return self._end - self._offset

    def take(self, count: int) -> bytes:
        """Return the next ``count`` bytes.

        Raises:
            ShortError: Fewer than ``count`` bytes are left; nothing was consumed.
        """
        start = self._offset
        end = start + count
        if end > self._end:
            raise ShortError(count, self._end - start)
        self._offset = end
        return self._data[start:end]

    def take_u8(self) -> int:
        """Return the next byte as an integer 0..255."""
        return self.take(1)[0]

    def take_u16(self) -> int:
        """Return the next two bytes as an integer 0..65535."""
        return int.from_bytes(self.take(2), "big")

    def take_u32(self) -> int:
        """Return the next four bytes as an integer 0..2**32-1."""
        return int.from_bytes(self.take(4), "big")
