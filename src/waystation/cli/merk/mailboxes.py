"""Opens, shows and closes the mailbox of an identity at its relay, for ``waystation merk mailbox``.

An action and a connected client go in, one document comes out, which ``commands`` prints as JSON or as a sentence.
"""

from datetime import UTC, datetime
from enum import Enum
from typing import Any

from waystation.sdk.merk import MailboxState, MerkClient

__all__ = ["MailboxAction", "act_on_mailbox", "describe"]


class MailboxAction(Enum):
    """What to do with the mailbox."""

    OPEN = "open"
    SHOW = "show"
    CLOSE = "close"


async def act_on_mailbox(action: MailboxAction, merk: MerkClient) -> dict[str, Any]:
    """Carry an action out and return what the relay says.

    Raises:
        RelayUnreachableError: There is no connection.
        TimeoutError: The relay does not answer.
    """
    mailbox = merk.mailbox
    acts = {MailboxAction.OPEN: mailbox.open, MailboxAction.SHOW: mailbox.state, MailboxAction.CLOSE: mailbox.close}
    said = await acts[action]()
    return {
        "relay": said.relay,
        "state": said.state.name.lower(),
        "messages": said.messages_count,
        "bytes": said.kept_bytes,
        "until_ms": said.until_ms,
    }


def describe(document: dict[str, Any]) -> str:
    """Return a sentence about a mailbox."""
    relay = document["relay"]
    if document["state"] == MailboxState.REFUSED.name.lower():
        return f"{relay} gives this identity no mailbox"
    if document["state"] == MailboxState.CLOSED.name.lower():
        return f"{relay} keeps no mail for this identity"
    until = datetime.fromtimestamp(document["until_ms"] / 1_000, UTC)
    waiting = f"{document['messages']} waiting, {document['bytes']} bytes"
    return f"{relay} keeps mail for this identity until {until:%Y-%m-%d}: {waiting}"
