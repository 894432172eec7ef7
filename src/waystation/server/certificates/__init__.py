"""Certificates of the listeners: which one each shows, the local authority, and taking over renewed files."""
