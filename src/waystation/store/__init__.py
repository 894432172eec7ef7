"""Durable stores behind ``core.records.Store``: ``memory`` forgets with the process, ``sqlite`` survives a power cut.

A store keeps bytes under keys in named tables and knows nothing of their meaning. The server calls ``commit`` from one
writer thread and reads from the event loop's thread.
"""
