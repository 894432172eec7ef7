"""The keys that sign for an author: keyrings, key events and certificates, with their periods of validity."""
