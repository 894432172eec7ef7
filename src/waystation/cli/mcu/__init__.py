"""The commands ``waystation mcu``: create, compile and run a microcontroller device."""
