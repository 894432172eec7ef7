"""Cryptographic primitives as plain functions; no other package imports a cryptographic library.

Randomness is passed in as an argument. PyNaCl (libsodium) provides signatures, key agreement and XChaCha20. It rejects
all borderline signatures and releases the interpreter lock. The library cryptography provides X.509.
"""
