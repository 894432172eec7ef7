"""Pure functions from DataFrame to DataFrame; each says which columns it takes and gives."""
