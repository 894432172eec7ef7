"""The node process around the engine: configuration, home folder, listeners, logs and lifecycle.

All code that uses the operating system is here or in ``transport`` and ``store``. Protocol decisions are in
``protocols``.
"""
