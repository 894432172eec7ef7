"""``python -m waystation``: the same as the ``waystation`` command."""

from waystation.cli import main

if __name__ == "__main__":
    main()
