"""Runs inside MicroPython or CPython: calls functions of the package and prints what they give, as JSON lines."""

import json
import sys
from binascii import hexlify, unhexlify

sys.path.insert(0, sys.argv[1])


def taken(value):
    """Return an argument as the function wants it."""
    if isinstance(value, dict):
        return unhexlify(value["hex"])
    return [taken(each) for each in value] if isinstance(value, list) else value


def told(value):
    """Return a result as JSON can say it."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"hex": hexlify(bytes(value)).decode()}
    return [told(each) for each in value] if isinstance(value, (list, tuple)) else value


def read_frames(payload_bytes_max, stream, chunk):
    """Return what a Reader makes of a stream that comes in chunks; its end is "malformed", "full" or None."""
    from bhumi.frames import MalformedError, Reader  # noqa: PLC0415 - found by the path that was given

    reader = Reader(payload_bytes_max)
    found = []
    at = 0
    try:
        while at < len(stream):
            room = reader.room()
            if not len(room):
                found.append("full")
                return found
            part = stream[at : at + min(chunk, len(room))]
            room[: len(part)] = part
            reader.took(len(part))
            at += len(part)
            while True:
                frame = reader.next()
                if frame is None:
                    break
                found.append(frame)
    except MalformedError:
        found.append("malformed")
        return found
    found.append(None)
    return found


with open(sys.argv[2]) as file:  # noqa: PTH123 - MicroPython has no pathlib
    calls = json.load(file)
for module, function, arguments in calls:
    if module == "remote":
        wanted = read_frames
    else:
        wanted = getattr(__import__("bhumi." + module, None, None, [function]), function)
    try:
        result = told(wanted(*[taken(each) for each in arguments]))
    except Exception as error:  # noqa: BLE001 - whatever it is, its name is what the test wants
        result = type(error).__name__
    print(json.dumps(result))  # noqa: T201 - the way back to the test
