# SPDX-License-Identifier: Apache-2.0
"""A blank disk: an ext4 file system with nothing in it, that VMs have overlays over.

It has no journal, since it is never mounted after a crash: a disk lives as long as the memory of its VM, and both are saved together. Its tables
are zeroed here (they are holes), so that no guest does it later, and it holds no checksums, which an emulated CPU would pay for.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from common import Refused

FEATURES = ["extent", "flex_bg", "64bit", "sparse_super", "large_file", "huge_file", "dir_nlink", "extra_isize", "dir_index", "filetype",
            "ext_attr", "resize_inode"]
UUID = "6b2f7a1e-3c50-4d1b-9a7e-2f0d5c8e4b10"
CONFIG = "[fs_types]\next4 = {\n}\n"


def make_blank_disk(out: Path, mib: int, work: Path) -> None:
    """The same size gives the same bytes; the host's mke2fs.conf has no say."""
    mke2fs = shutil.which("mke2fs", path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")
    if not mke2fs:
        raise Refused("a writable disk takes mke2fs; install e2fsprogs")
    config, whole = work / "mke2fs.conf", work / "blank"
    config.write_text(CONFIG)
    with whole.open("wb") as file:
        file.truncate(mib << 20)
    environment = {**os.environ, "MKE2FS_CONFIG": str(config), "E2FSPROGS_FAKE_TIME": "1", "SOURCE_DATE_EPOCH": "1"}
    subprocess.run([mke2fs, "-q", "-F", "-t", "ext4", "-O", ",".join(["none", *FEATURES]), "-b", "4096", "-I", "256", "-m", "0", "-L", "hutch",
                    "-U", UUID, "-E", f"lazy_itable_init=0,nodiscard,hash_seed={UUID},root_owner=0:0", whole],
                   check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    # mke2fs writes zeros, or allocates what it does not write.
    subprocess.run(["cp", "--sparse=always", whole, out], check=True, stderr=subprocess.PIPE)
    whole.unlink()
