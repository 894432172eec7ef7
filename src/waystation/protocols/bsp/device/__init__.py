"""One BSP device: its state and store, the records that it receives, and the records that it sends."""
