"""Fuzz targets: any bytes lead to acceptance or to a documented refusal, within a budget, and nowhere else."""
