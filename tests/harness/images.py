# SPDX-License-Identifier: Apache-2.0
"""Templates for VMs of the tests: base, and odd ones that are built the same way from a manifest made here."""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Optional, Sequence

import procs

BUILD = procs.ROOT / "rootfs" / "build"

# No packages, no directories, no applets: what the test puts in is all there is.
EMPTY = """
kernel = "linux-image-cloud-amd64"
memory_mib = 128
vcpus = 1
cmdline = [{cmdline}]
modules = ["vmw_vsock_virtio_transport", "virtio_mmio"]
[packages]
[directories]
"""


def static_agent() -> Path:
    """The agent that can be an /init. Under sanitizers it is linked dynamically, and then the release build's is taken."""
    for folder in (procs.build_dir(), procs.ROOT / "build"):
        agent = folder / "bin" / "hutch-agent"
        if agent.exists() and b"/ld-linux" not in agent.read_bytes():
            return agent
    raise RuntimeError("no static hutch-agent is built: cmake --preset release && cmake --build --preset release")


def build_template(name: str, into: Path, *args: object) -> Path:
    """Builds template NAME as into/NAME, as `hutch template build` does it."""
    out = into / name
    argv = [BUILD, "--agent", static_agent(), "--out", out, "--name", name, *args]
    made = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    return out


@functools.lru_cache(maxsize=None)
def base_templates() -> Path:
    """A template directory with base in it, built once for all tests of this run; to be copied, not changed."""
    folder = tempfile.TemporaryDirectory(prefix="hutch-templates-")
    atexit.register(folder.cleanup)
    build_template("base", Path(folder.name))
    return Path(folder.name)


def is_cached(name: str) -> bool:
    """Was the root disk of this template built here before, so that the packages it takes are there too?"""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hutch" / "images"
    return any(cache.glob(f"{name}-*.erofs"))


def build_empty(name: str, into: Path, work: Path, program: Optional[str] = None, cmdline: Sequence[str] = ()) -> Path:
    """A template of nothing but /init, the modules it loads and, given as C source, one static program /NAME."""
    manifest = work / name
    (manifest / "files").mkdir(parents=True)
    (manifest / "template.toml").write_text(EMPTY.format(cmdline=", ".join(f'"{word}"' for word in cmdline)))
    if program is not None:
        (work / f"{name}.c").write_text(program)
        subprocess.run(["musl-gcc", "-static", "-Os", "-s", "-o", manifest / "files" / name, work / f"{name}.c"], check=True)
    return build_template(name, into, "--templates", work)


def replace_file(template: Path, name: str, data: bytes) -> None:
    """Puts other bytes into a template's file, as a build that made them would have it."""
    (template / name).write_bytes(data)
    told = json.loads((template / "template.json").read_text())
    told["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (template / "template.json").write_text(json.dumps(told))
