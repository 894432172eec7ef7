"""Fuzz targets of Strata (signed publish and subscribe)."""
