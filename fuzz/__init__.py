"""Fuzz targets: each checks that any input is accepted or refused with a documented reason, with bounded output."""
