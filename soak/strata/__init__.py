"""Long tests of Strata (signed publish and subscribe) with real processes."""
