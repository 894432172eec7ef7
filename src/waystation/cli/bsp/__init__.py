"""The commands ``waystation bsp``: synchronise groups of messages between devices."""
