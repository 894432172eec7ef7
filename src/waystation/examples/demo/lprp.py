"""The LPRP part of ``waystation demo``: proof of work for unknown senders, none for listed ones, mail while offline.

``examples.demo.run`` calls ``run`` with a started host. A tenant is a key that has a queue at the host; whoever it
listed writes to it without work. Each step checks its result.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from waystation.sdk.lprp import HostUrl, LprpSender, LprpTenant, Message, Outcome, Sent, WorkEnded

__all__ = ["LprpDemo"]

STEP_TIMEOUT_S: Final = 60.0  # work is a matter of luck, and the machine may be slow
LETTERS: Final = 30
LONG_BYTES: Final = 8_000


class LprpDemo:
    """Plays the steps against one running host."""

    def __init__(
        self, folder: Path, say: Callable[[str, str], None], expect: Callable[[bool, str], None], host: HostUrl
    ) -> None:
        """Prepare.

        Args:
            folder: Where identities lie.
            say: Shows who did what.
            expect: Notes what is not as promised.
            host: Where messages are left.
        """
        self._folder = folder
        self._say = say
        self._expect = expect
        self._host = host

    async def run(self) -> None:
        """Play every step."""
        async with asyncio.timeout(4 * STEP_TIMEOUT_S):
            unknown, listed = (LprpSender(self._folder / name, self._host) for name in ("henry", "ivy"))
            async with unknown as henry, listed as ivy:
                gina = await self._be_awake(henry, ivy)
                await self._sleep_and_wake(gina, henry, ivy)

    async def _be_awake(self, henry: LprpSender, ivy: LprpSender) -> bytes:
        """Play what happens while the tenant is there; return its key."""
        began, worked = time.perf_counter(), list[WorkEnded]()

        def on_event(event: object) -> None:
            if isinstance(event, WorkEnded):
                worked.append(event)

        async with LprpTenant(self._folder / "gina", self._host, on_event=on_event) as gina:
            took_s = time.perf_counter() - began
            self._expect(bool(worked), "a lease was given away without work")
            bits, hashes = max(each.progress.bits for each in worked), sum(each.progress.hashes for each in worked)
            self._say("gina", f"worked for a lease: {hashes:,} hashes, {took_s:.1f} s, up to {bits} bits searched for")
            await self._write_as_unknown(henry, gina)
            await gina.allow(ivy.public_key)
            self._say("gina", "put ivy on her whitelist; the host has agreed")
            await self._write_as_friend(ivy, gina)
            return gina.public_key

    async def _write_as_unknown(self, henry: LprpSender, gina: LprpTenant) -> None:
        bits = [0]
        began = time.perf_counter()
        sent = await henry.send(
            gina.public_key,
            "hello, we have not met",
            on_progress=lambda progress: bits.append(progress.work.bits if progress.work is not None else 0),
        )
        took_s = time.perf_counter() - began
        (message,) = await self._read(gina, 1)
        self._expect(sent.ok and sent.hashes > 0, f"an unknown sender was let through without work: {sent}")
        self._expect(message.text == "hello, we have not met", f"{message.text!r} arrived instead")
        cost = f"{sent.hashes:,} hashes, {took_s:.2f} s, up to {max(bits)} bits searched for"
        self._say("host", f"asked henry, an unknown sender, for work: {cost}")

    async def _write_as_friend(self, ivy: LprpSender, gina: LprpTenant) -> None:
        began = time.perf_counter()
        sent = await ivy.send(gina.public_key, "x" * LONG_BYTES)
        took_ms = (time.perf_counter() - began) * 1_000
        (message,) = await self._read(gina, 1)
        self._expect(sent.ok and sent.hashes == 0, f"a friend was not simply let through: {sent}")
        self._expect(len(message.data) == LONG_BYTES and message.sealed, "a long message came otherwise than sent")
        self._say(
            "ivy", f"sent {LONG_BYTES:,} bytes in {sent.parts_count} sealed packets without work, {took_ms:.0f} ms"
        )

    async def _sleep_and_wake(self, gina: bytes, henry: LprpSender, ivy: LprpSender) -> None:
        self._say("gina", "went to sleep: her program is not running")
        letters = [f"letter {number}" for number in range(LETTERS)]
        sent = [await ivy.send(gina, letter) for letter in letters]
        sent.append(await henry.send(gina, "are you there?"))
        self._expect(all(each.ok for each in sent), f"not all was kept for a sleeper: {_outcomes(sent)}")
        self._say("host", f"took {len(sent)} messages for her and has them on its disk")
        began = time.perf_counter()
        async with LprpTenant(self._folder / "gina", self._host) as awake:
            messages = await self._read(awake, len(sent))
            took_ms = (time.perf_counter() - began) * 1_000
            texts = sorted(message.text or "" for message in messages)
            self._expect(texts == sorted([*letters, "are you there?"]), f"{len(texts)} messages, not those sent")
            self._say("gina", f"woke up and got all {len(messages)}, each once, in {took_ms:.0f} ms")
        nobody = await ivy.send(bytes(31) + b"\x09", "hello?", seal=False)
        self._expect(nobody.outcome is Outcome.REFUSED, f"a message to nobody was {nobody.outcome.sentence}")
        self._say("ivy", f"wrote to a key without a lease: {nobody.outcome.sentence}")

    async def _read(self, tenant: LprpTenant, count: int) -> list[Message]:
        messages: list[Message] = []
        async with asyncio.timeout(STEP_TIMEOUT_S):
            async for message in tenant.messages():
                await message.done()
                messages.append(message)
                if len(messages) == count:
                    break
        return messages


def _outcomes(sent: list[Sent]) -> list[str]:
    return sorted({each.outcome.value for each in sent})
