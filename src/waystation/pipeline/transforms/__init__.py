"""Pure functions from DataFrame to DataFrame; each function's docstring names its input and output columns."""
