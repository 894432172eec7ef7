"""WebSocket servers and clients as pipes of messages."""
