"""Fuzz targets of MERK (end-to-end encrypted messages over WebSocket)."""
