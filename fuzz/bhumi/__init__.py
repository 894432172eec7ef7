"""Fuzz targets of the Bhumi protocol."""
