# SPDX-License-Identifier: Apache-2.0
"""Makes the package and the harness importable, and gives the rigs as fixtures."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools" / "python"), str(ROOT / "tests" / "harness")]
