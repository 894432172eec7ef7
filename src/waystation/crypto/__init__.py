"""One plain function per primitive; the only room that imports cryptographic libraries.

Randomness comes in as an argument. PyNaCl (libsodium) serves signatures, key agreement and XChaCha20, because it
refuses every borderline signature and lets go of the interpreter lock; cryptography serves X.509.
"""
