"""Formats the output of ``waystation strata``: packets and connections.

The commands pass what the SDK returns. Ids and DIDs are printed in full, so that they can be pasted. Terminal control
characters in packets are escaped.
"""

import json
import sys
import time
from typing import Final

import typer

from waystation.cli.output import print_json, visible
from waystation.sdk.strata import Connected, Delivery, Disconnected, packet_id_text

__all__ = ["ConnectionNews", "show_delivery"]

_LATEST_S: Final = 253_402_300_799  # the last second of the year 9999


class ConnectionNews:
    """Says on stderr that a relay is out of reach or lost, once, and that it is back."""

    def __init__(self) -> None:
        """Begin with no relay out of reach."""
        self._missed: set[str] = set()

    def show(self, url: str, event: Connected | Disconnected) -> None:
        """Take what a client reports about its connection to a relay."""
        if isinstance(event, Connected):
            if url in self._missed:
                self._missed.remove(url)
                typer.echo(f"waystation: connected to {url}", err=True)
        elif url not in self._missed:
            self._missed.add(url)
            typer.echo(visible(f"waystation: {event.reason}; trying again", kept=""), err=True)


def show_delivery(delivery: Delivery, *, as_json: bool) -> None:
    """Print one packet: when, its type and its author; below, its id and what it says."""
    packet = delivery.packet
    if as_json:
        document = {
            "packet": packet.body,
            "received_at": delivery.received_at,
            "relay": delivery.relay,
            "origin_type": delivery.origin_type,
            "live": delivery.live,
        }
        print_json(document | ({"provenance_downgrade": delivery.downgrade} if delivery.downgrade else {}))
    else:
        content = packet.body["content"]
        text = content.get("text")
        shown = text if isinstance(text, str) else json.dumps(content, ensure_ascii=False)
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(min(packet.timestamp, _LATEST_S)))
        typer.echo(visible(f"{when}  {packet.content_type:<10}  {packet.author_id}", kept=""))
        typer.echo(f"  {packet_id_text(packet.packet_id)}")
        typer.echo(visible(f"  {shown}", kept=""))
    sys.stdout.flush()
