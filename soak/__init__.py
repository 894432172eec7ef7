"""Long tests of real node processes: ``python -m soak.run`` runs all of them, ``--only`` some."""
