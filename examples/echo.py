"""An echo bot over MERK: it sends every text back to its sender, encrypted, to try out a mesh and a client.

Run it, and say something to the key that it prints:

    python examples/echo.py serve bot wss://relay.example/merk
    python examples/echo.py say me wss://relay.example/merk KEY "hello"
"""

import argparse
import asyncio
import ssl

import waystation

ANSWER_S = 30


async def serve(home: str, relay: str, tls: ssl.SSLContext | None) -> None:
    """Answer every text until stopped; a lost connection comes back by itself."""
    async with waystation.merk.open(home, relay, tls=tls) as client:
        print(client.public_key.id52, flush=True)
        async for message in client.messages():
            if not message.text:
                continue
            try:
                sent = await client.send(message.sender, f"you said: {message.text}")
            except waystation.errors.WaystationError as error:  # nothing was sent; the next message may work
                print(error, flush=True)
            else:
                print(f"{message.sender.hex()[:8]}: {sent.sentence}", flush=True)


async def say(home: str, relay: str, tls: ssl.SSLContext | None, key: str, text: str) -> bool:
    """Send one text and print the bot's answer; return whether it came."""
    bot = waystation.PublicKey.parse(key)
    async with waystation.merk.open(home, relay, tls=tls) as client:
        sent = await client.send(bot, text)
        if not sent.ok:
            print(f"{sent.sentence}; {sent.advice}")
            return False
        try:
            async with asyncio.timeout(ANSWER_S):
                async for message in client.messages():
                    if message.sender == bot:
                        print(message.text)
                        return True
        except TimeoutError:
            print("accepted, but no answer came")
        return False


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("serve", "say"))
    parser.add_argument("home", help="folder of this identity")
    parser.add_argument("relay", help="wss://host/merk")
    parser.add_argument("key", nargs="?", default="", help="for say: the key that the bot prints")
    parser.add_argument("text", nargs="?", default="hello", help="for say")
    parser.add_argument("--ca", help="certificate of an authority to trust, for a relay of your own")
    given = parser.parse_args()
    try:
        tls = waystation.tls(given.ca) if given.ca else None
        if given.action == "serve":
            asyncio.run(serve(given.home, given.relay, tls))
        elif not asyncio.run(say(given.home, given.relay, tls, given.key, given.text)):
            raise SystemExit(1)
    except waystation.errors.WaystationError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
