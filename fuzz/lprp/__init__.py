"""Fuzz targets of LPRP (signed UDP mail)."""
