"""The payload that two MERK clients exchange: contents, signatures, encryption and file transfer."""
