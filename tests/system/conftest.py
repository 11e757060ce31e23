# SPDX-License-Identifier: Apache-2.0
"""Makes the package and the harness importable, and gives the rigs as fixtures."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools" / "python"), str(ROOT / "tests" / "harness")]


def pytest_configure(config):
    config.addinivalue_line("markers", "limit(seconds): a test may take this long; default 60")
    config.addinivalue_line("markers", "slow: takes more than some 20 s")
    # However this was started: a shell lets what it starts in the background ignore these, and so would all started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    if "HUTCH_BUILD" in os.environ:
        os.environ["HUTCH_BUILD"] = os.path.abspath(os.environ["HUTCH_BUILD"])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    """A test that hangs fails by itself, with every thread's stack."""
    mark = item.get_closest_marker("limit")
    seconds = mark.args[0] if mark else 60

    def hung(_signal, _frame):
        faulthandler.dump_traceback(sys.__stderr__)
        raise AssertionError(f"not over after {seconds} s")

    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
