"""waystation: one relay node for five relay protocols, clients for each, and a Spark pipeline.

For programs, the five clients and what they share; each is imported when it is first named::

    import waystation

    async with waystation.merk.open("me", "wss://relay.example/merk", tls=waystation.tls("ca.pem")) as client:
        sent = await client.send(waystation.PublicKey.parse(target), "hello")
        print(sent.sentence, sent.advice)
        async for message in client.messages():
            print(message.sender.hex(), message.text)

``waystation.bhumi``, ``bsp``, ``lprp``, ``merk`` and ``strata`` have an ``open`` each; ``bridges`` carries BSP over the
others. ``errors`` is everything they raise, ``Outcome`` and ``Sent`` what became of a message.

The rooms, from the inside out, and who may import whom (tests/test_architecture.py proves it):

- ``core``: words every room shares. ``crypto``: one function per primitive. ``rules``: pure decisions.
- ``protocols``: one folder per protocol, all of one shape; they never import each other.
- ``journal``: what the node records. ``engine``: the node without I/O.
- ``store``, ``transport``, ``server``: disks, sockets and the process around the engine.
- ``sdk``: asyncio clients. ``sim``: a whole network in one thread on a virtual clock.
- ``pipeline``: PySpark over the journal. ``cli``: puts everything together.

Importing this package computes nothing and needs no extra.
"""

from waystation.version import __version__

TYPE_CHECKING = False  # `typing` costs more than all the rest of this module
if TYPE_CHECKING:
    from waystation import bhumi, bridges, bsp, errors, lprp, merk, strata
    from waystation.core.ids import PublicKey
    from waystation.sdk.outcome import Outcome, Sent
    from waystation.transport.tls import client_context as tls

__all__ = [
    "Outcome",
    "PublicKey",
    "Sent",
    "__version__",
    "bhumi",
    "bridges",
    "bsp",
    "errors",
    "lprp",
    "merk",
    "strata",
    "tls",
]

_MODULES = ("bhumi", "bridges", "bsp", "errors", "lprp", "merk", "strata")
_OTHERS = {
    "Outcome": ("waystation.sdk.outcome", "Outcome"),
    "PublicKey": ("waystation.core.ids", "PublicKey"),
    "Sent": ("waystation.sdk.outcome", "Sent"),
    "tls": ("waystation.transport.tls", "client_context"),
}


if not TYPE_CHECKING:  # a type checker reads the imports above, and knows no other name

    def __getattr__(name: str) -> object:
        """Import what a program names, and keep it here."""
        from importlib import import_module  # noqa: PLC0415 - not needed by `import waystation`

        if name in _MODULES:
            found = import_module(f"waystation.{name}")
        elif name in _OTHERS:
            module, attribute = _OTHERS[name]
            found = getattr(import_module(module), attribute)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
