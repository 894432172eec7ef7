"""Proxies before the node: which are trusted, where they name clients, and what they do wrong."""
