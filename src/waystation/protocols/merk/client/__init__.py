"""The MERK client: one connection to a relay, which sends and receives frames."""
