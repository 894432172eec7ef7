"""The commands ``waystation merk``: send and receive messages over the MERK mesh."""
