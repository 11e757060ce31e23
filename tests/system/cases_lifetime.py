# SPDX-License-Identifier: Apache-2.0
"""Timeout, kill, cancel, orphans and exec objects. Each case is named after reference cases C0xx; run on every rig."""

from __future__ import annotations

import signal
import time

import pytest

import hutch
from box import FULL, Box, parallel
from procs import eventually


class LifetimeCases:
    @pytest.mark.parametrize("how", ["pipes", "stdin", "pty", "user", "grace", "detached"])
    @pytest.mark.parametrize(
        "script", ["(sleep {s}; echo x > {f}) & wait", "setsid sh -c 'sleep {s}; echo x > {f}' & sleep 77",
                   "(setsid sh -c '(sleep {s}; echo x > {f}) & (sleep {s}; echo x > {f}) &' &); trap '' TERM HUP INT; while :; do sleep 1; done"],
    )
    def test_c003_timeout_ends_the_whole_tree(self, box: Box, script, how):
        """C003, fault: only the shell is killed; its children write after the caller was told that it is over.

        No process of the exec is left when the result is there, so nobody can write any more; with HUTCH_TEST_FULL the
        5 s are waited for as well.
        """
        mark = f"3.0{time.monotonic_ns() % 10**9}"
        with box.tmp() as tmp:
            command = ["sh", "-c", script.format(s=mark, f=f"{tmp}/late")]
            with box.within(1.5):
                if how == "detached":
                    id = box.sandbox.commands.start(command, timeout_seconds=0.5)
                    r = box.sandbox.commands.wait(id, 30)
                elif how == "pty":
                    with box.pty(command, timeout_seconds=0.5) as s:
                        r = s.wait(30, check=False)
                else:
                    options = {"stdin": {"stdin": "x"}, "user": {"user": box.users[-1]}, "grace": {"grace_seconds": 0.2}}.get(how, {})
                    r = box.exec(command, timeout_seconds=0.5, check=False, **options)
            assert r.timed_out and r.started and r.exit_code in (137, 143)
            assert r.duration_ms >= 500
            assert box.running(mark) == []
            if FULL:
                time.sleep(5)
            assert box.exec(["test", "-e", f"{tmp}/late"]).exit_code == 1

    def test_c024_output_before_the_timeout_is_kept(self, box: Box):
        """C024, fault: what was printed before the timeout is thrown away."""
        for merge in (False, True):
            r = box.exec(["sh", "-c", "echo a; echo b >&2; sleep 60"], timeout_seconds=1 if FULL else 0.4, check=False, merge_stderr=merge)
            assert r.timed_out and (r.stdout, r.stderr) == (("a\nb\n", "") if merge else ("a\n", "b\n"))

    def test_c024_exit_0_on_the_timeouts_signal_is_no_success(self, box: Box):
        """C024, fault: a command that leaves with 0 when the timeout's SIGTERM comes counts as a success. Python raises."""
        command = ["sh", "-c", "trap 'exit 0' TERM; echo up; sleep 61.5 & wait"]
        with pytest.raises(hutch.ExecTimeout) as caught:
            box.exec(command, timeout_seconds=1, grace_seconds=5)
        r = caught.value.result
        assert r.timed_out and not r.ok and r.exit_code == 0 and r.signal is None and r.stdout == "up\n"
        box.gone("sleep 61.5", 2)
        r = box.exec(command, timeout_seconds=1, check=False)
        assert r.timed_out and r.exit_code == 137
        box.gone("sleep 61.5", 2)

    def test_timeout_of_zero_and_none_mean_no_timeout(self, box: Box):
        assert not box.exec("sleep 0.2", timeout_seconds=0).timed_out
        assert not box.exec("sleep 0.2").timed_out

    def test_end_just_before_the_timeout_is_no_timeout(self, box: Box):
        """C024 kin: the race of exit and timeout gives one or the other, never a mixture."""
        for r in parallel(lambda i: box.exec("sleep 0.1; exit 5", timeout_seconds=0.08 + i * 0.004, check=False), range(box.n(40, 10)), 4):
            assert (r.timed_out, r.exit_code, r.signal) in ((False, 5, None), (True, 137, 9)), r

    def test_c054_orphans_are_reaped(self, box: Box):
        """C054, fault: orphans of finished commands stay as zombies until no new process can be made."""
        parallel(lambda _: box.exec(["sh", "-c", "sleep 0.1 &"]), range(box.n(200, 40)), 8)
        watched = [box.stream(["sh", "-c", f"sleep 0.5; exit {i}"]) for i in range(5)]
        box.sh("i=0; while [ $i -lt 500 ]; do (sleep 0.1 &); i=$((i+1)); done")
        assert [s.wait(60).exit_code for s in watched] == list(range(5))
        eventually(lambda: not [p for p in box.processes() if p[1] == "Z"], 1 + 2 * box.slow, "no zombie")
        assert box.exec(["sh", "-c", "ulimit -u 256 2>/dev/null; true"]).exit_code == 0

    def test_kill_ends_everything_and_says_so(self, box: Box):
        """Whole-tree kill: setsid and double forks included; the result says who did it."""
        mark = f"60.0{time.monotonic_ns() % 10**9}"
        with box.stream(f"setsid sleep {mark} & (setsid sh -c 'sleep {mark} & wait' &) ; sleep {mark}") as s:
            eventually(lambda: len(box.running(f"sleep {mark}")) >= 3, 10, "all sleepers")
            s.kill()
            assert box.running(mark) == []
            r = s.wait(20)
            assert r.canceled and r.signal == 9 and r.exit_code == 137 and not r.timed_out
            s.kill()  # an exec that ended already

    def test_kill_with_grace_lets_it_clean_up(self, box: Box):
        with box.tmp() as tmp:
            with box.stream(f"trap 'echo bye > {tmp}/bye; exit 9' TERM; echo up; while :; do sleep 0.05; done") as s:
                assert s.read(20).data == "up\n"
                s.kill(grace_seconds=10)
                r = s.wait(20)
            assert r.canceled and r.exit_code == 9 and r.signal is None
            assert box.exec(["cat", f"{tmp}/bye"]).stdout == "bye\n"

    def test_kill_after_the_end_reaches_survivors(self, box: Box):
        mark = f"60.1{time.monotonic_ns() % 10**9}"
        r = box.exec(f"setsid sleep {mark} & exit 0")
        assert r.exit_code == 0 and len(box.running(mark)) == 1
        box.sandbox.commands.kill(r.id)
        assert box.running(mark) == []

    def test_kill_spares_every_other_command(self, box: Box):
        with box.stream(["sleep", "60"]) as other, box.stream(["sleep", "60"]) as s:
            s.kill()
            assert s.wait(20).canceled
            assert any(e.id == other.id and e.state == "running" for e in box.sandbox.execs())

    @pytest.mark.parametrize("sig", [2, 15, 9, 10, "TERM", "HUP", "KILL"])
    def test_signal(self, box: Box, sig):
        with box.stream(["sleep", "60"]) as s:
            s.signal(sig)
            r = s.wait(20)
            number = sig if isinstance(sig, int) else int(getattr(signal, "SIG" + sig))
            assert (r.signal, r.exit_code, r.canceled) == (number, 128 + number, False)

    def test_signal_reaches_the_group_or_the_tree(self, box: Box):
        loop = "while :; do :; done"  # no children, which the signal would end
        script = f"trap 'echo outer' USR1; setsid sh -c 'trap \"echo inner\" USR1; echo up; {loop}' & {loop}"
        with box.stream(script) as s:
            assert s.read(20).data == "up\n"
            s.signal("USR1")
            assert s.read(20).data == "outer\n"
            s.signal("USR1", tree=True)
            seen = ""
            while sorted(seen.split()) != ["inner", "outer"]:
                seen += s.read(20).data
            s.kill()

    @pytest.mark.parametrize("sig", [0, 65, "NOSUCH", -1, "", None])
    def test_bad_signals_are_refused(self, box: Box, sig):
        with box.stream(["sleep", "60"]) as s:
            with pytest.raises(hutch.Invalid):
                box.client.call("exec.signal", {"signal": sig}, vm=box.vm, id=s.id)
            s.kill()

    def test_unknown_exec_is_not_found(self, box: Box):
        for method, params in [("exec.wait", {}), ("exec.kill", {}), ("exec.signal", {"signal": 15}), ("exec.attach", {}),
                               ("exec.close_stdin", {}), ("exec.resize", {"rows": 1, "cols": 1})]:
            with pytest.raises(hutch.NotFound, match="no-such"):
                box.client.call(method, params, vm=box.vm, id="no-such")

    def test_id_of_the_clients_choice(self, box: Box):
        name = f"my.exec_{time.monotonic_ns()}"
        r = box.exec("echo hi", id=name)
        assert r.id == name
        with box.stream(["sleep", "60"], id=name + "b"):
            with pytest.raises(hutch.Exists):
                box.exec("echo hi", id=name + "b")
        for bad in ("", "-x", ".x", "a b", "x" * 65, "a/b", "\u00e9"):
            with pytest.raises(hutch.Invalid):
                box.client.call("exec.start", {"argv": ["true"]}, vm=box.vm, id=bad)

    def test_start_is_idempotent_by_key(self, box: Box):
        """Idempotent start: the same key and arguments attach to the first one; other arguments are refused."""
        with box.tmp() as tmp:
            key = f"k{time.monotonic_ns()}"
            command = f"echo run >> {tmp}/count; echo out; sleep 0.5; exit 6"
            streams = parallel(lambda _: box.stream(command, key=key, capture=True), range(5), 5)
            with pytest.raises(hutch.Exists):
                box.stream(command + " ", key=key)
            results = parallel(lambda s: s.wait(20), streams, 5)
            assert {(r.id, r.exit_code, r.stdout) for r in results} == {(streams[0].id, 6, "out\n")}
            assert box.exec(["cat", f"{tmp}/count"]).stdout == "run\n"

    def test_wait_and_attach_collect_a_detached_command(self, box: Box):
        commands = box.sandbox.commands
        id = commands.start("echo one; echo two >&2; sleep 0.3; exit 8")
        with pytest.raises(hutch.Timeout):
            commands.wait(id, 0.05)
        assert commands.wait(id, 20).exit_code == 8
        r = commands.connect(id, capture=True).wait(20)
        assert (r.stdout, r.stderr, r.exit_code) == ("one\n", "two\n", 8)

    def test_detached_command_with_input(self, box: Box):
        commands = box.sandbox.commands
        id = commands.start(["cat"], stdin=True)
        assert commands.send_stdin(id, "hello ") == 6
        assert commands.send_stdin(id, b"x" * 200000) == 200000
        commands.close_stdin(id)
        r = commands.connect(id, capture=True).wait(20)
        assert r.stdout == "hello " + "x" * 200000 and r.exit_code == 0

    def test_list_tells_what_runs(self, box: Box):
        with box.stream(["sleep", "60.25"]) as s, box.pty(["sleep", "60.25"]) as p:
            found = {e.id: e for e in box.sandbox.execs()}
            assert found[s.id].state == "running" and found[s.id].argv == ["sleep", "60.25"]
            assert (found[s.id].pty, found[p.id].pty, found[s.id].detached) == (False, True, False)
            assert found[s.id].attached == 1 and found[s.id].started_ms_ago < 20000 and found[s.id].pid == s.pid
            s.kill()
            p.kill()

    def test_lost_connection_is_no_statement_about_the_command(self, box: Box):
        """Orphans: on the agent a lost connection kills nothing and the output can be had; the broker cancels for its client."""
        mark = f"60.2{time.monotonic_ns() % 10**9}"
        s = box.stream(f"echo before; sleep {mark}")
        assert s.read(20).data == "before\n"
        s.close()
        if box.kind == "agent":
            assert box.running(f"sleep {mark}") != []
            with box.sandbox.attach(s.id, owner=True, stdout_after=0) as again:
                assert again.pid == s.pid and again.read(20).data == "before\n"
                again.kill()
                assert again.wait(20).canceled
        box.gone(f"sleep {mark}", 3)

    def test_client_that_is_killed_takes_its_command_with_it(self, box: Box):
        """Cancel by closing: the process of the client dies without a word."""
        if box.kind == "agent":
            return  # the agent alone knows no clients; see the test above
        mark = f"60.3{time.monotonic_ns() % 10**9}"
        import subprocess, sys  # noqa: E401

        import hutch as package
        from pathlib import Path

        code = (
            f"import sys; sys.path.insert(0, {str(Path(package.__file__).parents[1])!r}); import hutch; "
            f"hutch.Client({box.socket!r}).exec('echo up; sleep {mark}', vm={box.vm!r}, on_stdout=lambda d: print(d, flush=True))"
        )
        client = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert client.stdout.readline() == b"up\n"
        assert len(box.running(f"sleep {mark}")) >= 1
        client.kill()
        client.wait()
        client.stdout.close()
        box.gone(f"sleep {mark}", 3)

    def test_usage_and_duration_are_told(self, box: Box):
        r = box.exec("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.2")
        assert r.duration_ms >= 200 and 0 < r.user_ms + r.system_ms < r.duration_ms and r.max_rss_kib > 0
