"""Fuzz targets of BSP (Bramble Sync Protocol)."""
