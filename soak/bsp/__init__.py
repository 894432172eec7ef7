"""Long tests of BSP (Bramble Sync Protocol) with real processes."""
