"""UDP sockets, local broadcast and mDNS."""
