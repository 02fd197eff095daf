"""WHAT A FROZEN ENCODER SAYS: preprocessing, the embedding pass over a data set, its cache, nearest neighbours."""
