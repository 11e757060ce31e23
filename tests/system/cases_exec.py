# SPDX-License-Identifier: Apache-2.0
"""Results, starting, environment and users of a command. Each case is named after reference cases C0xx; run on every rig."""

from __future__ import annotations

import threading

import pytest

import hutch
from box import Box, parallel


class ExecCases:
    def test_c001_exit_code_is_never_lost_to_the_reaper(self, box: Box):
        """C001, fault: two parts of the agent wait for the same child. 1000 runs, 8 at a time, beside orphans."""
        stop = threading.Event()

        def orphans():
            while not stop.is_set():
                box.exec(["sh", "-c", "sleep 0.05 &"])

        noise = threading.Thread(target=orphans)
        noise.start()
        try:
            results = parallel(lambda _: box.exec(["sh", "-c", "sleep 0 & exit 7"]), range(box.n(1000, 80)), 8)
        finally:
            stop.set()
            noise.join()
        assert {(r.exit_code, r.signal, r.stdout, r.stderr, r.started) for r in results} == {(7, None, "", "", True)}

    @pytest.mark.parametrize("variant", ["pty", "detached", "user", "stdin"])
    def test_c001_kin_exit_code(self, box: Box, variant):
        """C001's fault on a PTY, detached, as another user and with open input."""

        def one(i):
            code = i % 250
            script = f"sleep 0 & exit {code}"
            if variant == "pty":
                with box.pty(["sh", "-c", script]) as s:
                    return code, s.wait(20).exit_code
            if variant == "detached":
                return code, box.sandbox.commands.wait(box.sandbox.commands.start(script), 20).exit_code
            if variant == "stdin":
                return code, box.exec(script, stdin="x").exit_code
            return code, box.exec(script, user=box.users[-1]).exit_code

        for want, got in parallel(one, range(box.n(100, 16)), 8):
            assert got == want

    def test_c010_sleepers_never_block_the_agent(self, box: Box):
        """C010, fault: the agent waits for a child inside its loop."""
        with box.stream(["sleep", "30"]) as first, box.stream(["cat"], stdin=True):
            for _ in range(3):
                with box.within(1):
                    assert box.exec(["echo", "ok"], timeout_seconds=30).stdout == "ok\n"
                with box.within(1):
                    box.sandbox.ping()
                with box.within(1):
                    assert any(e.id == first.id and e.state == "running" for e in box.sandbox.execs())

    def test_c010_64_sleepers(self, box: Box):
        """C010 with 64 at once: the agent answers, and its memory stays small."""
        sleepers = []
        try:
            for _ in range(64):
                sleepers.append(box.stream(["sleep", "60"]))
            assert len({s.pid for s in sleepers}) == 64
            with box.within(1):
                assert box.exec(["echo", "ok"]).stdout == "ok\n"
            with box.within(1):
                box.sandbox.ping()
            assert box.sandbox.agent_info()["execs"] >= 64
            box.agent_rss_at_most(2048)
        finally:
            for s in sleepers:
                s.kill()
                s.close()

    @pytest.mark.parametrize(
        "cwd, kind, name",
        [("/no/such", "cwd", "ENOENT"), ("/etc/passwd", "cwd", "ENOTDIR"), ("/no/such/" + "d" * 300, "cwd", "ENOENT")],
    )
    @pytest.mark.parametrize("command", [["pwd"], "true; printf x > marker", ["/no/such/program"]])
    def test_c023_bad_working_directory(self, box: Box, cwd, kind, name, command):
        """C023, fault: a bad cwd is told as a missing program, or the rest of a command list runs elsewhere."""
        r = box.exec(command, cwd=cwd)
        assert not r.started and r.exit_code in (126, 127) and r.pid is None
        assert (r.start_error.kind, r.start_error.errno_name, r.start_error.stage) == (kind, name, "chdir")
        assert r.start_error.path == cwd[:255] and cwd[:40] in r.start_error.message
        assert box.exec("ls -d marker /marker /etc/marker").stdout == ""

    def test_c023_default_working_directory(self, box: Box):
        """C023: no cwd and no HOME is `/`; HOME when it is there; relative to HOME."""
        assert box.exec(["pwd"], clear_env=True, env={"PATH": "/usr/bin:/bin"}).stdout == "/\n"
        assert box.exec(["pwd"], env={"HOME": "/tmp"}).stdout == "/tmp\n"
        assert box.exec(["pwd"], env={"HOME": "/no/such/home"}).stdout == "/\n"
        with box.tmp() as tmp:
            box.sh(f"mkdir {tmp}/sub")
            assert box.exec(["pwd"], env={"HOME": tmp}, cwd="sub").stdout == f"{tmp}/sub\n"
            assert box.exec(["pwd"], cwd=f"{tmp}/sub/../sub").stdout == f"{tmp}/sub\n"

    def test_c023_directory_that_the_user_may_not_enter(self, box: Box):
        """C023 kin: permission instead of absence, seen as the command's user and not as the agent's."""
        user = box.users[-1]
        with box.tmp() as tmp:
            box.sh(f"mkdir -m 700 {tmp}/closed")
            r = box.exec(["pwd"], cwd=f"{tmp}/closed", user=user)
            if user is None:
                assert r.stdout == f"{tmp}/closed\n"
            else:
                assert not r.started and (r.start_error.kind, r.start_error.errno_name) == ("cwd", "EACCES")

    @pytest.mark.parametrize(
        "script, exit_code, signal",
        [("kill -9 $$", 137, 9), ("kill -TERM $$", 143, 15), ("kill -HUP $$", 129, 1), ("kill -SEGV $$", 139, 11),
         ("exit 137", 137, None), ("exit 143", 143, None), ("exit 256", 0, None), ("exit 255", 255, None), ("exit 0", 0, None)],
    )
    def test_c028_signal_and_exit_code_are_told_apart(self, box: Box, script, exit_code, signal):
        """C028, fault: raw wait status or signal number given as the exit code. Pipes, PTY, and as another user."""
        for user in box.users:
            r = box.exec(["sh", "-c", script], user=user)
            assert (r.exit_code, r.signal, r.started, r.timed_out) == (exit_code, signal, True, False)
        with box.pty(["sh", "-c", script]) as s:
            r = s.wait(20)
            assert (r.exit_code, r.signal) == (exit_code, signal)

    @pytest.mark.parametrize(
        "argv, exit_code, kind, name",
        [(["/nonexistent"], 127, "not_found", "ENOENT"), (["nonexistent"], 127, "not_found", "ENOENT"),
         (["/etc"], 126, "denied", "EACCES"), (["/etc/passwd"], 126, "denied", "EACCES"),
         (["/etc/passwd/x"], 126, None, "ENOTDIR"), (["./nonexistent"], 127, "not_found", "ENOENT")],
    )
    def test_c029_what_did_not_start(self, box: Box, argv, exit_code, kind, name):
        """C029, fault: not found, not executable and our own failure folded into one code."""
        for options in ({}, {"stdin": "x"}, {"user": box.users[-1]}, {"merge_stderr": True}):
            r = box.exec(argv, **options)
            assert not r.started and r.pid is None and r.signal is None
            assert r.start_error.errno_name == name and r.start_error.stage == "execve"
            if kind is not None:
                assert (r.exit_code, r.start_error.kind) == (exit_code, kind)
            assert argv[0] in r.start_error.message and r.stdout == r.stderr == ""
        with box.pty(argv) as s:
            assert not s.wait(20).started

    def test_c029_neighbours(self, box: Box):
        """C029: the shell's own 127 is a started program; scripts without interpreter; unusable formats."""
        r = box.exec(["sh", "-c", "exit 127"])
        assert r.started and r.exit_code == 127 and r.start_error is None
        r = box.exec("nonexistent-command")
        assert r.started and r.exit_code == 127
        with box.tmp() as tmp:
            box.sh(f"printf '#!/no/such/interpreter\\n' > {tmp}/s; printf 'x' > {tmp}/f; chmod 755 {tmp}/s {tmp}/f; : > {tmp}/e; chmod 755 {tmp}/e")
            r = box.exec([f"{tmp}/s"])
            assert not r.started and r.exit_code == 127 and r.start_error.errno_name == "ENOENT"
            assert "interpreter" in r.start_error.message
            r = box.exec([f"{tmp}/f"])
            assert not r.started and r.exit_code == 126 and (r.start_error.kind, r.start_error.errno_name) == ("format", "ENOEXEC")
            # not executable in one PATH directory, there in the next one
            box.sh(f"mkdir {tmp}/a {tmp}/b; printf '#!/bin/sh\\necho b' > {tmp}/b/prog; cp {tmp}/b/prog {tmp}/a; chmod 644 {tmp}/a/prog; chmod 755 {tmp}/b/prog")
            assert box.exec(["prog"], env={"PATH": f"{tmp}/a:{tmp}/b:/usr/bin:/bin"}).stdout == "b\n"
            r = box.exec(["prog"], env={"PATH": f"{tmp}/a:/no/such"})
            assert not r.started and r.exit_code == 126 and r.start_error.kind == "denied"

    @pytest.mark.parametrize("argv", [[], [""], ["a\0b"], ["true", "x\0"], ["x"] * 4097, [5], {}, [None], [["x"]]])
    def test_c029_argv_that_cannot_be(self, box: Box, argv):
        """C029: refused before anything runs, and the agent lives."""
        with pytest.raises(hutch.Invalid):
            box.client.call("exec.start", {"argv": argv}, vm=box.vm)
        box.sandbox.ping()

    @pytest.mark.parametrize(
        "params",
        [{}, {"argv": ["true"], "shell": "true"}, {"shell": 5}, {"argv": ["true"], "timeout_ms": -1}, {"argv": ["true"], "timeout_ms": "1"},
         {"argv": ["true"], "env": {"": "x"}}, {"argv": ["true"], "env": {"A=B": "x"}}, {"argv": ["true"], "env": {"A": "x\0y"}},
         {"argv": ["true"], "env": {"A": 1}}, {"argv": ["true"], "env": []}, {"argv": ["true"], "cwd": "a\0b"}, {"argv": ["true"], "cwd": ""},
         {"argv": ["true"], "drain_ms": 10001}, {"argv": ["true"], "pty": {"rows": 0}}, {"argv": ["true"], "pty": {"rows": 70000}},
         {"argv": ["true"], "pty": {"cols": 65536}}, {"argv": ["true"], "pty": 1}, {"argv": ["true"], "user": "nosuch"},
         {"argv": ["true"], "user": ""}, {"argv": ["true"], "user": "root:nosuch"}, {"argv": ["true"], "user": "4294967296"},
         {"argv": ["true"], "user": "-1"}, {"argv": ["true"], "user": ":"}, {"argv": ["true"], "user": "1:"}],
    )
    def test_invalid_parameters_are_refused_and_nothing_runs(self, box: Box, params):
        """C029, C033, C065, C074: what cannot be right is an error, not a started command."""
        before = {e.id for e in box.sandbox.execs()}
        with pytest.raises(hutch.Invalid) as caught:
            box.client.call("exec.start", params, vm=box.vm)
        assert caught.value.message and not caught.value.retryable
        assert {e.id for e in box.sandbox.execs()} <= before

    def test_unknown_user_is_named(self, box: Box):
        """C065: the refusal names the user."""
        with pytest.raises(hutch.Invalid, match="nosuch"):
            box.exec(["id"], user="nosuch")

    def test_c046_nothing_of_the_agent_leaks_into_a_command(self, box: Box):
        """C046, fault: the agent's socket, or another command's pipe, is inherited."""
        listing = ["ls", "/proc/self/fd"]
        others = [box.stream(["sleep", "60"]), box.stream(["sleep", "60"]), box.pty(["sleep", "60"]), box.pty(["sleep", "60"]),
                  box.stream(["cat"], stdin=True)]
        try:
            assert box.exec(listing).stdout == "0\n1\n2\n3\n"
            assert box.exec(listing, stdin="x").stdout == "0\n1\n2\n3\n"
            assert box.exec(listing, merge_stderr=True).stdout == "0\n1\n2\n3\n"
            assert box.exec(listing, user=box.users[-1]).stdout == "0\n1\n2\n3\n"
            with box.pty(listing) as s:
                assert "".join(p.data for p in s).split() == ["0", "1", "2", "3"]
            results = parallel(lambda _: box.exec(listing).stdout, range(box.n(100, 30)), 20)
            assert set(results) == {"0\n1\n2\n3\n"}
        finally:
            for s in others:
                s.close()

    def test_c046_leaked_pipe_end_would_keep_another_command_open(self, box: Box):
        """C046: A's input ends when it is closed, though B was started after A."""
        with box.stream(["cat"], stdin=True) as a, box.stream(["sleep", "60"]), box.pty(["sleep", "60"]):
            with box.within(1):
                a.close_stdin()
                assert a.wait(20).exit_code == 0

    def test_nothing_else_of_the_agent_leaks(self, box: Box):
        """C046 kin: signal mask and dispositions, umask, nice, oom score, session, environment."""
        status = dict(line.split(":", 1) for line in box.exec(["cat", "/proc/self/status"]).stdout.splitlines())
        for field in ("SigBlk", "SigIgn", "SigCgt"):
            assert int(status[field], 16) == 0, (field, status[field])
        assert status["Umask"].strip() == "0022"
        assert int(box.exec(["cat", "/proc/self/oom_score_adj"]).stdout) >= 0
        stat = box.exec(["cat", "/proc/self/stat"]).stdout
        fields = stat[stat.rindex(")") + 2 :].split()
        pid, pgid, sid, nice = stat.split()[0], fields[2], fields[3], fields[16]
        assert pgid == sid == pid and nice == "0"
        names = {line.split("=", 1)[0] for line in box.exec(["env"]).stdout.splitlines()}
        assert names <= {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "SHLVL", "_"}, names
        assert {"PATH", "HOME"} <= names

    def test_c074_environment_values_arrive_as_they_are(self, box: Box):
        """C074, fault: values rebuilt through text, cut at a space, a second `=` or a newline; empty ones vanish."""
        env = {"A": "x=y=z", "B": "l1\nl2", "C": "", "D": "hello world", "E": " lead and trail ", "F": "$HOME `id` \"'\\", "G": "é\u20ac"}
        out = box.exec(["env", "-0"], env=env).stdout
        for name, value in env.items():
            assert f"{name}={value}" in out.split("\0")
        only = box.exec(["/usr/bin/env", "-0"] if box.kind != "vm" else ["env", "-0"], env={**env, "PATH": "/usr/bin:/bin"}, clear_env=True).stdout
        assert set(only.rstrip("\0").split("\0")) == {f"{k}={v}" for k, v in env.items()} | {"PATH=/usr/bin:/bin"}

    def test_c074_neighbours(self, box: Box):
        """C074: default PATH, a nil value removes a name, values that are no text, a very long one, and on a PTY."""
        assert "PATH=" in box.exec(["env"]).stdout
        assert box.exec(["sh", "-c", "ls / > /dev/null && echo $PATH"]).stdout.count(":") >= 1
        assert "HOME=" not in box.exec(["env"], env={"HOME": None}).stdout
        raw = box.exec(["env", "-0"], env={"R": b"\xff\xfe="}, text=False).stdout
        assert b"R=\xff\xfe=" in raw.split(b"\0")
        long = "v" * 100000
        assert f"L={long}" in box.exec(["env", "-0"], env={"L": long}).stdout.split("\0")
        with box.pty(["env"], env={"A": "x=y z"}) as s:
            lines = "".join(p.data for p in s).split("\r\n")
        assert "A=x=y z" in lines and "TERM=xterm-256color" in lines
        assert "TERM=" not in box.exec(["env"]).stdout

    def test_arguments_arrive_as_they_are(self, box: Box):
        """C074's fault for arguments: spaces, empty ones, newlines, quotes, and bytes that are no text."""
        words = ["a b", "", "l1\nl2", "'\"`$(id)", "-n", "é\u20ac", "\\"]
        assert box.exec(["printf", "%s\\0", *words]).stdout.split("\0")[:-1] == words
        assert box.exec(["printf", "%s", b"\xff\xfe\x01"], text=False).stdout == b"\xff\xfe\x01"
        many = [str(i) for i in range(4000)]
        assert box.exec(["printf", "%s\\n", *many]).stdout.split() == many

    def test_command_line_longer_than_the_kernel_takes(self, box: Box):
        """C029 kin: E2BIG is a start error by name, not a crash."""
        r = box.exec(["true", "x" * 200000])
        assert not r.started and r.start_error.errno_name == "E2BIG" and r.exit_code == 126
        box.sandbox.ping()

    def test_c065_numbers_without_an_entry(self, box: Box):
        """C065: a uid and gid that no passwd knows; nothing of root's groups is kept."""
        if box.users[-1] is None:  # an agent without privilege says so instead of running as itself
            r = box.exec(["id"], user="4242:4343")
            assert not r.started and r.start_error.kind == "user"
            return
        fields = dict(line.split(":", 1) for line in box.exec(["cat", "/proc/self/status"], user="4242:4343").stdout.splitlines())
        assert fields["Uid"].split() == ["4242"] * 4 and fields["Gid"].split() == ["4343"] * 4
        assert fields["Groups"].split() in ([], ["4343"])
        assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == int(fields["CapInh"], 16) == 0
        assert box.exec("echo $HOME; pwd", user="4242:4343").stdout == "/\n/\n"

    def test_results_of_many_at_once_are_never_mixed_up(self, box: Box):
        """C001 kin: each of many concurrent commands gets its own output, error output and exit code."""

        def one(i):
            r = box.exec(["sh", "-c", f"echo out-{i}; echo err-{i} >&2; exit {i % 200}"])
            return (r.stdout, r.stderr, r.exit_code) == (f"out-{i}\n", f"err-{i}\n", i % 200)

        assert all(parallel(one, range(box.n(400, 60)), 32))
