# SPDX-License-Identifier: Apache-2.0
"""Clients of other users. Needs root."""

from __future__ import annotations

import json
import os
import traceback

import hutch

GROUP = 4242  # may connect: the configuration of a test's broker says so


def as_uid(uid, rig, action, groups=()):
    """Run action(client) in a process of that uid, group GROUP and more groups.

    Its JSON result, or the hutch error's kind, text, and whether to retry.
    """
    there, back = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups(list(groups))
            os.setgid(GROUP)
            os.setuid(uid)
            try:
                answer = action(hutch.Client(str(rig.socket)))
            except hutch.HutchError as e:
                answer = {"error": e.kind, "retryable": e.retryable, "text": str(e)}
            os.write(back, json.dumps(answer).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(back)
    with os.fdopen(there, "rb") as pipe:
        text = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0
    return json.loads(text)
