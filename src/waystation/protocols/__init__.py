"""The five protocols, each in one folder of the same layout.

``messages`` defines the message types, ``wire`` encodes and decodes them, ``session`` keeps the state of one
connection. ``relay`` is the node's side, ``client`` the other side, ``refusals`` the reasons and their wire codes.
Protocols never import each other.
"""
