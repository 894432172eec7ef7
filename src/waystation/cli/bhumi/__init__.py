"""The commands ``waystation bhumi``: listen and send as a Bhumi participant."""
