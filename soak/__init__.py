"""Long runs of a Strata node: ``python -m soak.run`` tries every law, ``--only`` some of them."""
