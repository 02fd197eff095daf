from __future__ import annotations

import os
import signal

import pytest

from manyview.training import signals


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.collected(quiet=True) as came:
            os.kill(os.getpid(), signal.SIGHUP)
            assert came == []
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_ctrl_c_does_what_it_always_does() -> None:
    with signals.collected(quiet=True) as came:
        os.kill(os.getpid(), signal.SIGINT)
        assert came == [signal.SIGINT]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
