"""What a browser gets from a node: the public page, and the SDK that the page and other sites import.

``site`` answers plain GETs from files that are read once. The files stand in ``web/page`` (HTML, styles and modules of
the page) and ``web/sdk`` (plain ES modules, no build step); both work without any other server.
"""
