"""The Bhumi clients: a device's, a sender's and a guide client's connection to a relay."""
