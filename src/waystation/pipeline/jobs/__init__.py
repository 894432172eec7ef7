"""Pipeline steps: each reads its input tables, runs transforms, writes its output tables and returns row counts."""
