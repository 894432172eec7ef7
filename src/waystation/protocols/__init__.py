"""The five protocols, one folder each, all of one shape.

``messages`` (what can be said), ``wire`` (bytes and messages), ``session`` (one connection), ``relay`` (the node's
side), ``client`` (the other side), ``refusals`` (reasons and wire codes). Protocols never import each other.
"""
