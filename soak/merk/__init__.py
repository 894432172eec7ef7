"""Long tests of MERK (end-to-end encrypted messages over WebSocket) with real processes."""
