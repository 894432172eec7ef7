"""Long tests of Bhumi with real processes."""
