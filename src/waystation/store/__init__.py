"""Implementations of ``core.records.Store``: ``memory`` without durability, ``sqlite`` with durability.

Records in ``sqlite`` survive a power cut. A store does not interpret keys and values. The server calls ``commit`` on
one writer thread and reads on the event loop's thread.
"""
