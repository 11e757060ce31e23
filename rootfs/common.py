# SPDX-License-Identifier: Apache-2.0
"""What the image builder's scripts share: how a refusal is told, and how a file comes into being."""

import contextlib
import lzma
import os
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import BinaryIO, Callable, Iterator


class Refused(Exception):
    """What was asked cannot be done; the message says what is wrong and, where it can, what to do."""


def say(text: str) -> None:
    print(f"rootfs: {text}", file=sys.stderr, flush=True)


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hutch"


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Written beside, then renamed: path is the old file or the whole new one, never a part."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as out:
        try:
            yield out
            os.fchmod(out.fileno(), 0o644)
            os.rename(out.name, path)
        except BaseException:
            os.unlink(out.name)
            raise


def run_main(name: str, work: Callable[[], None]) -> int:
    """Runs work; every expected failure becomes one line on stderr and exit status 1."""
    try:
        work()
    except subprocess.CalledProcessError as e:
        said = (e.stderr or b"").decode(errors="replace").strip()
        print(f"{name}: {e.cmd[0]} failed with {e.returncode}{': ' + said if said else ''}", file=sys.stderr)
        return 1
    except (Refused, OSError, EOFError, lzma.LZMAError, zlib.error) as e:
        print(f"{name}: {e}", file=sys.stderr)
        return 1
    return 0
