"""The web pages of a node: the public page, and the JavaScript SDK that this page and other sites import.

``site`` answers plain GETs from files that are read once. ``web/page`` has the page (HTML, styles, modules), and
``web/sdk`` has plain ES modules without a build step. Both work without any other server.
"""
