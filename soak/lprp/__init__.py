"""Long tests of LPRP (signed UDP mail) with real processes."""
