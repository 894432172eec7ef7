"""The payloads that two LPRP clients exchange: encryption and fragments. Hosts cannot read encrypted ones."""
