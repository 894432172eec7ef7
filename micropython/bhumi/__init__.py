"""A Bhumi device for microcontrollers: one package, one file per layer, the same in MicroPython 1.22+ and CPython.

``device`` is what a program uses, with ``state``; the other files are its layers and import nothing they do not need::

    names      id52 and addresses as text
    frames     the frames of the wire
    payloads   what peers say inside the encrypted payload
    suites     the encryption of that payload; on chacha, aes, x25519
    ed25519    signatures; on sha512
    tls        the connection to a relay whose authority is pinned
    port       what differs between the two interpreters

What it leaves out stands in BHUMI-MCU. MicroPython drops annotations when it compiles, so they cost nothing on a board.
"""
