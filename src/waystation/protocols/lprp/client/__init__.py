"""The LPRP client: a tenant or sender that uses one host."""
