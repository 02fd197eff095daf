"""The settings of a run, read from signatures, recipes and flags, both strict."""
