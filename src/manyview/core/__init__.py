"""Shared by every room: types, random numbers by key, parallel map, atomic files, processes, progress display."""
