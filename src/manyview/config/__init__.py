"""Settings: read from signatures, recipes and flags, both strict."""
