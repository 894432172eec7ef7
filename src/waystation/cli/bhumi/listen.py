"""Runs a listening Bhumi device for the command line: how it answers, what it prints, and when it ends."""

import asyncio
import json
import os
import shlex
import signal
import sys
import threading
from typing import Final

import typer

from waystation.cli.bhumi.show import document_of, sentence_of
from waystation.cli.output import EXIT_INTERRUPTED, print_json, visible
from waystation.core.errors import LocalError
from waystation.core.ids import encode_id52
from waystation.sdk.bhumi import (
    BhumiState,
    ContentType,
    Device,
    DeviceEvent,
    Handled,
    Handler,
    Listening,
    PresenceAsserted,
    Request,
)

__all__ = ["Listener", "handler_of"]

_CANCEL_AGAIN_S: Final = 0.4  # a cancellation that met another event is lost; asyncio.wait_for of 3.11 does that
_HARD_END_S: Final = 0.9  # a signal ends the program within a second


def handler_of(echo: bool, execute: str | None) -> Handler:
    """Return what answers requests: their echo, what a program prints, or "ok"; raises LocalError."""
    if echo and execute is not None:
        raise LocalError("--echo and --exec exclude each other")
    return _echo if echo else _ok if execute is None else _Execute(execute).answer


class Listener:
    """Shows a device's events and ends it after enough requests, or on SIGTERM or SIGINT."""

    def __init__(self, state: BhumiState, count: int, *, as_json: bool, hidden: bool = False) -> None:
        self._hidden = hidden
        self._id52 = encode_id52(state.identity)
        self._count = count
        self._handled_count = 0
        self._shown_relay = ""
        self._as_json = as_json
        self._enough = asyncio.Event()
        self._interrupted = False

    async def run(self, device: Device) -> None:
        """Run the device until it fails, enough was handled, or a signal comes; raises KeyboardInterrupt on SIGINT."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        running = asyncio.create_task(device.run())
        enough = asyncio.create_task(self._enough.wait())
        await asyncio.wait([running, enough], return_when=asyncio.FIRST_COMPLETED)
        enough.cancel()
        while not running.done():
            running.cancel()
            await asyncio.wait([running], timeout=_CANCEL_AGAIN_S)
        if self._interrupted:
            raise KeyboardInterrupt
        if not running.cancelled():
            running.result()

    def _stop(self, number: int) -> None:
        self._interrupted = number == signal.SIGINT
        # A name lookup runs in a thread that cannot be cancelled, and the loop would wait for it.
        hard_end = threading.Timer(_HARD_END_S, os._exit, (EXIT_INTERRUPTED if self._interrupted else 0,))
        hard_end.daemon = True
        hard_end.start()
        self._enough.set()

    def show(self, event: DeviceEvent) -> None:
        """Print one event."""
        if isinstance(event, PresenceAsserted):
            if event.relay == self._shown_relay:  # the same again every few minutes is no news
                return
            self._shown_relay = event.relay
        document = document_of(event, self._id52)
        if self._as_json:
            print_json(document)
            sys.stdout.flush()
        elif isinstance(event, Handled):
            typer.echo(visible(f"{event.request.alias}: {event.request.text}"))
        else:
            unseen = "; nobody can look this device up" if self._hidden and isinstance(event, Listening) else ""
            typer.echo(sentence_of(document) + unseen, err=True)
        if isinstance(event, Handled):
            self._handled_count += 1
            if self._handled_count == self._count:
                self._enough.set()


async def _echo(request: Request) -> bytes | str:
    if request.content_type is ContentType.COMMAND:
        return json.dumps({"cmd": request.command().cmd, "args": request.command().args})
    return request.content


async def _ok(_request: Request) -> bytes | str:
    return "ok"


class _Execute:
    """Answers with what a program prints. No shell is involved."""

    def __init__(self, command: str) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise LocalError(f"--exec cannot be split into words: {error}") from error
        if not self._words:
            raise LocalError("--exec names no program")

    async def answer(self, request: Request) -> bytes | str:
        """Run the program; its failure is the peer's error."""
        environment = os.environ | {
            "BHUMI_PEER": encode_id52(request.peer),
            "BHUMI_ALIAS": request.alias,
            "BHUMI_CONTENT_TYPE": request.content_type.name.lower(),
        }
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*self._words, stdin=pipe, stdout=pipe, env=environment)
        try:
            printed, _ = await process.communicate(request.content)
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            raise RuntimeError(f"{self._words[0]} ended with exit code {process.returncode}")
        return printed
