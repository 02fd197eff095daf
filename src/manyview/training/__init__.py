"""Trains: the loop, its step, optimisers, checkpoints, the run folder, its log and its launch."""
