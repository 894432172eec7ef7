"""``waystation backup``, ``restore``, ``upgrade`` and ``check``: what an operator does with a home as a whole."""
