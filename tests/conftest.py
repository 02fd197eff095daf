"""What holds for all tests."""

from __future__ import annotations

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell takes from what it starts in the background
