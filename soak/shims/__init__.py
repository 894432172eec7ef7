"""Libraries for LD_PRELOAD that make a node's disk and clock go wrong, and what compiles and switches them.

They are written in C beside this file: ``io_faults`` (failing, slow and forgotten calls), ``power_cut`` (what is on the
disk for certain) and ``clock`` (another time of day). ``preload`` compiles them with cc and sets their words.
"""
