# SPDX-License-Identifier: Apache-2.0
"""C065: users of images whose /etc/passwd and /etc/group are missing, broken or huge."""

from __future__ import annotations

import os

import pytest

import hutch
import procs
from agentrig import AgentRig

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: other users, an /etc of its own")

GOOD_PASSWD = "root:x:0:0:root:/root:/bin/sh\\napp:x:1000:1000:App:/srv/app:/bin/sh\\n"
GOOD_GROUP = "root:x:0:\\nstaff:x:50:app,other\\napp:x:1000:\\n"

# What stands in front of the good entries.
BROKEN = {
    "empty lines, half lines, no numbers": r"\n\n:\n::\n:x:0:0::/:/bin/sh\napp\napp:x\napp:x:\napp:x:one:two::/:/bin/sh\n",
    "numbers out of range": r"app:x:-1:-1::/:/bin/sh\napp:x:4294967295:4294967295::/:\napp:x:99999999999999999999:0::/:\napp:x:0x10:0::/:\n",
    "NUL bytes and no UTF-8": r"\0\0\0\napp\0:x:0:0::/:/bin/sh\n\377\376:x:0:0::/:/bin/sh\n",
    "a comment and NIS's entry": r"# app:x:0:0::/:/bin/sh\n+::::::\n",
}


def setup(before: str, *, after: str = "") -> str:
    """An /etc that only the agent sees: `before`, then the good entries, then `after` (printf's escapes)."""
    return f"""
mount -t tmpfs none /etc
printf '{before}' > /etc/passwd; printf '{GOOD_PASSWD}' >> /etc/passwd; printf '{after}' >> /etc/passwd
printf '{before}' > /etc/group; printf '{GOOD_GROUP}' >> /etc/group
"""


def ids(rig: AgentRig, user: str):
    r = rig.sandbox.exec("cat /proc/self/status; echo HOME:$HOME; echo USER:$USER", user=user)
    assert r.exit_code == 0, r
    fields = dict(line.split(":", 1) for line in r.stdout.splitlines())
    uids, gids = set(fields["Uid"].split()), set(fields["Gid"].split())
    assert len(uids) == len(gids) == 1
    return int(uids.pop()), int(gids.pop()), sorted(int(g) for g in fields["Groups"].split()), fields["HOME"], fields["USER"]


def refused(rig: AgentRig, user: str) -> None:
    try:
        r = rig.sandbox.exec("true", user=user)
    except hutch.HutchError as e:
        assert all(part in str(e) for part in user.split(":"))
        return
    assert not r.started and all(part in r.start_error.message for part in user.split(":"))


def check_good_users(rig: AgentRig) -> None:
    assert ids(rig, "app") == (1000, 1000, [50, 1000], "/srv/app", "app")
    assert ids(rig, "1000") == (1000, 1000, [50, 1000], "/srv/app", "app")
    assert ids(rig, "app:staff") == (1000, 50, [50], "/srv/app", "app")
    refused(rig, "nosuch")
    refused(rig, "app:nosuch")
    uid, gid, groups, home, _ = ids(rig, "4242:4343")
    assert (uid, gid, home) == (4242, 4343, "/") and groups in ([], [4343])


@pytest.mark.parametrize("before", BROKEN.values(), ids=BROKEN.keys())
def test_c065_broken_lines_are_no_users(before):
    with AgentRig(setup=setup(before)) as rig:
        check_good_users(rig)


def test_c065_no_etc_at_all():
    with AgentRig(setup="mount -t tmpfs none /etc") as rig:
        uid, gid, groups, home, _ = ids(rig, "4242:4343")
        assert (uid, gid, home) == (4242, 4343, "/") and groups in ([], [4343])
        uid, gid, groups, home, _ = ids(rig, "1000")
        assert uid == 1000 and gid != 0 and 0 not in groups and home == "/"
        refused(rig, "app")
        assert rig.sandbox.exec("id -u").stdout == "0\n"


@pytest.mark.parametrize("fill", ["a", "app:x:0:0:"], ids=["letters", "fields"])
def test_c065_a_line_of_10_mb(fill):
    """Neither a crash nor memory for it, and what stands before and after it counts."""
    lines = f"""
head -c 10000000 /dev/zero | sed 's/\\x00/{fill}/g' | head -c 10000000 > /etc/long
for f in passwd group; do {{ cat /etc/$f; cat /etc/long; echo; }} > /etc/new; mv /etc/new /etc/$f; done
rm /etc/long
printf 'late:x:1001:1001::/srv/late:/bin/sh\\n' >> /etc/passwd
"""
    with AgentRig(setup=setup("") + lines) as rig:
        before = rig.rss_kib()
        check_good_users(rig)
        assert ids(rig, "late") == (1001, 1001, [1001], "/srv/late", "late")
        assert procs.sanitized("hutch-agent") or rig.rss_kib() - before < 1024


def test_c065_etc_that_is_no_file():
    """A directory or a fifo in place of passwd is no user database, and the agent waits for neither."""
    with AgentRig(setup="mount -t tmpfs none /etc; mkdir /etc/passwd; mkfifo /etc/group") as rig:
        refused(rig, "app")
        assert rig.sandbox.exec("id -u", user="4242").stdout == "4242\n"
