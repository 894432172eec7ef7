"""The process around the engine: configuration, the node's home, logs, lifecycle.

Everything that touches the host lives here or in ``transport`` and ``store``; decisions about protocols do not.
"""
