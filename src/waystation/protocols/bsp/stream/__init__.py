"""BSP on byte streams: the handshake, the sessions, and the machine that drives them."""
