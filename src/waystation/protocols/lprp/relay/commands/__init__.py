"""The commands that change a host's state: leases, mail, whitelists and proof of work, one module each."""
