# SPDX-License-Identifier: Apache-2.0
"""hutch shell, exec -t and attach on a real terminal: keys, sizes, job control, detaching, and modes that come back."""

from __future__ import annotations

import os
import signal
import subprocess

import procs
import pytest
from brokerrig import BrokerRig
from terminal import Terminal, hutch, socket_env

QUIET = ["-e", "PS1=$ ", "-e", "PS2="]
SH = ["--", "/bin/sh", "-i"]
DETACH = b"\x10\x11"


@pytest.fixture(scope="module")
def rig():
    with BrokerRig() as rig:
        yield rig


@pytest.fixture(scope="module")
def vm(rig):
    return rig.create(ttl_seconds=1200).id


def open_terminal(rig, *args, **more):
    env = {**socket_env(rig.socket), "TERM": "vt220", **more.pop("env", {})}
    return Terminal(hutch(*args), env=env, **more)


def shell(rig, vm, *args, **more):
    t = open_terminal(rig, "shell", *QUIET, *args, vm, *SH, **more)
    t.expect("$ ")
    return t


def cli(rig, *args, **more):
    env = {**os.environ, **socket_env(rig.socket)}
    return subprocess.run(hutch(*args), env=env, capture_output=True, timeout=60, **more)


def execs(rig, vm):
    return cli(rig, "ps", "-q", vm).stdout.decode().split()


# Like ssh


def test_shell_is_a_terminal(rig, vm):
    with shell(rig, vm, rows=33, cols=101) as t:
        assert t.is_raw()
        t.send("stty size; echo T=$TERM; tty; echo $((6*7))\n")
        t.expect("33 101\r\n")
        t.expect("T=vt220\r\n")
        t.expect("/dev/pts/")
        t.expect("42\r\n")
        t.send("exit 7\n")
        assert t.wait() == 7
        assert t.is_restored()


def test_login_shell_of_the_user(rig, vm):
    with open_terminal(rig, "shell", vm) as t:
        t.await_raw()
        t.send("shopt -q login_shell && echo log''in; exit 3\n")
        t.expect("log''in")
        assert t.wait() == 3
        assert b"\rlogin\r" in t.screen


def test_size_follows(rig, vm):
    with shell(rig, vm) as t:
        t.send("trap 'stty size; echo now' WINCH; echo re''ady\n")
        t.expect("ready\r\n")
        for rows, cols in ((40, 120), (10, 20), (65, 200)):
            t.size(rows, cols)
            t.kill(signal.SIGWINCH)  # the session's foreground group got it already; twice is harmless
            while True:  # dash runs a trap at the next line only
                t.send("\n")
                try:
                    t.expect(f"{rows} {cols}\r\n", 1)
                    break
                except AssertionError:
                    t.send("stty size\n")
        t.send("exit\n")
        assert t.wait() == 0


def test_ctrl_c_ctrl_z_and_eof_are_the_guests(rig, vm):
    with shell(rig, vm) as t:
        asleep = "/bin/sh -c 'echo as''leep; exec sleep 100'\n"  # the shell gave it the terminal before
        t.send(asleep)
        t.expect("\nasleep")
        t.send(b"\x03")
        t.expect("$ ")
        t.send("echo st=$?\n")
        t.expect("st=130")
        t.expect("$ ")
        t.send(asleep)
        t.expect("\nasleep")
        t.send(b"\x1a")
        t.expect("Stopped")
        t.expect("$ ")
        t.send("kill -9 %1; wait; echo al''ive\n")
        t.expect("alive")
        t.expect("$ ")

        def told():  # with one of the next prompts
            t.send("\n")
            t.expect("$ ")
            return b"Killed" in t.screen

        procs.eventually(told, 20, "the shell to know of its job's end")
        t.send(b"\x04")
        t.wait()
        assert t.is_restored()


def test_eight_bits_clean(rig, vm):
    every = bytes(range(256))
    with open_terminal(rig, "shell", "--detach-keys", "", vm, "--", "sh", "-c", "stty raw -echo; echo go; head -c 512 | od -An -v -tx1") as t:
        t.expect("go")
        t.send(every + every)
        assert t.wait() == 0
    hexes = t.screen[t.screen.index(b"go") + 2 :].split()
    assert bytes(int(h, 16) for h in hexes) == every + every


def test_every_byte_comes_out(rig, vm):
    script = "stty raw; i=0; while [ $i -lt 256 ]; do printf \"\\\\$(printf %03o $i)\"; i=$((i+1)); done"
    with open_terminal(rig, "shell", vm, "--", "sh", "-c", script) as t:
        assert t.wait() == 0
    assert bytes(range(256)) in t.screen


def test_much_output_is_whole(rig, vm):
    with open_terminal(rig, "shell", vm, "--", "seq", "1", "60000") as t:
        assert t.wait() == 0
    assert t.screen.split() == [str(i).encode() for i in range(1, 60001)]


def test_exit_statuses(rig, vm):
    for script, status in (("exit 255", 255), ("kill -9 $$", 137), ("exit 0", 0)):
        with open_terminal(rig, "exec", "-it", vm, "sh", "-c", script) as t:
            assert t.wait() == status and t.is_restored()
    with open_terminal(rig, "shell", vm, "--", "/nonexistent/x") as t:
        assert t.wait() == 127 and t.is_restored()
        assert b"/nonexistent/x" in t.screen
    with open_terminal(rig, "shell", "nosuch") as t:
        assert t.wait() == 125 and t.is_restored()


def test_stdin_that_is_no_terminal(rig, vm):
    r = cli(rig, "shell", vm, "--", "sh", "-c", "tty; read x; echo got-$x; exit 4", input=b"word\n")
    assert r.returncode == 4 and b"got-word" in r.stdout and b"/dev/pts/" in r.stdout
    r = cli(rig, "shell", vm, "--", "cat", input=b"")
    assert r.returncode == 0
    with open(os.devnull, "rb") as null:
        with open_terminal(rig, "shell", vm, "--", "stty", "size", stdin=null.fileno(), rows=31, cols=77) as t:
            assert t.wait() == 0 and b"31 77" in t.screen


def test_exec_tty_without_input(rig, vm):
    with open_terminal(rig, "exec", "--tty", vm, "sh", "-c", "tty; exec sleep 100") as t:
        t.expect("/dev/pts/")
        assert not t.is_raw()
        # our own terminal makes it a SIGINT, and hutch passes that on; the shell has no child that could miss it between vfork(2) and execve(2)
        t.send(b"\x03")
        assert t.wait() == 130


# Whatever happens, the terminal comes back


@pytest.mark.parametrize("sig", ["TERM", "HUP", "INT", "QUIT"])
def test_signals_restore(rig, vm, sig):
    number = getattr(signal, "SIG" + sig)
    with shell(rig, vm) as t:
        t.send("echo $$-pid\n")
        t.kill(number)
        assert t.wait() == 128 + number
        assert t.is_restored()
    procs.eventually(lambda: not running(rig, vm), 20)


def running(rig, vm):
    return [e for e in rig.client.call("exec.list", vm=vm)["execs"] if e["state"] == "running"]


@pytest.mark.parametrize("sig", ["SEGV", "ABRT"])
def test_a_crash_restores(rig, vm, sig):
    number = getattr(signal, "SIG" + sig)
    with shell(rig, vm) as t:
        t.kill(number)
        assert t.wait() == -number
        assert t.is_restored()


def test_stop_and_go_on(rig, vm):
    """Stopped from outside, as job control does it. The terminal is usable meanwhile."""
    # A session's leader is an orphaned group, which SIGTSTP does not stop: so under a shell.
    line = " ".join(hutch("shell", *[f"'{w}'" for w in QUIET], vm, *SH))
    with Terminal(["/bin/bash", "--norc", "--noprofile", "-i"], env={**socket_env(rig.socket), "PS1": "host> "}) as t:
        t.expect("host> ")
        t.send(line + "\n")
        t.await_raw()
        t.send("echo in''side; cat\n")
        t.expect("inside\r\n")
        pid = procs.descendants(t.pid)[0].pid
        for _ in range(3):
            os.kill(pid, signal.SIGTSTP)
            procs.eventually(lambda: procs.stat(pid).state == "T", 10)
            t.expect("Stopped")
            t.send("stty -a | grep -o ' icanon' ; fg\n")
            t.expect("\r icanon")
            t.await_raw()
            t.send("word\n")
            t.expect("word\r\nword\r\n")
        t.send(b"\x03")  # what was typed ahead of it is dropped
        t.expect("$ ")
        t.send("exit 9\n")
        t.expect("host> ")
        t.send("echo st=$?\n")
        t.expect("st=9")


def test_broker_lost(rig):
    with BrokerRig() as own:
        vm = own.create().id
        with shell(own, vm) as t:
            own.kill(signal.SIGKILL)
            assert t.wait() == 125
            assert t.is_restored()
            assert b"connection to the broker was lost" in t.screen
            # After the terminal was restored: no line hangs in the middle.
            assert t.screen.endswith(b"\r\n")
        own.start()


def test_vm_killed(rig):
    vm = rig.create().id
    with shell(rig, vm) as t:
        assert cli(rig, "kill", vm).returncode == 0
        assert t.wait() == 125 and t.is_restored()


# Detached, and back


def test_detach_and_attach(rig, vm):
    with shell(rig, vm) as t:
        t.send("X=kept; echo first''line\n")
        t.expect("\nfirstline\r\n")
        t.send(DETACH)
        assert t.wait() == 0
        assert t.is_restored()
        words = t.screen.decode().split()
        id = words[-1]
        assert words[-4:-1] == ["hutch", "attach", vm] and id in execs(rig, vm)
    with open_terminal(rig, "attach", vm, id, rows=50, cols=90) as t:
        t.expect("firstline\r\n")  # replayed
        t.await_raw()
        t.send("echo $X-$((1+1)); stty size\n")
        t.expect("\nkept-2\r\n")
        t.expect("50 90\r\n")
        t.send("exit 5\n")
        assert t.wait() == 5 and t.is_restored()


def test_detached_by_every_key_before(rig, vm):
    """ctrl-p alone, twice, and before another key goes to the guest."""
    with open_terminal(rig, "shell", vm, "--", "sh", "-c", "stty raw -echo; echo go; head -c 5 | od -An -v -tx1; sleep 100") as t:
        t.expect("go")
        t.send(b"\x10a\x10\x10b")
        t.expect("10 61 10 10 62")
        t.send(b"\x10")
        t.send(DETACH)
        assert t.wait() == 0
        id = t.screen.decode().split()[-1]
    assert cli(rig, "cancel", vm, id).returncode == 0
    r = cli(rig, "wait", vm, id)
    assert r.returncode == 137


def test_other_keys(rig, vm):
    with open_terminal(rig, "shell", "--detach-keys", "ctrl-a,d", vm, "--", "sleep", "100") as t:
        t.await_raw()
        t.send(DETACH + b"\x01d")
        assert t.wait() == 0
        id = t.screen.decode().split()[-1]
    assert id in execs(rig, vm)
    assert cli(rig, "signal", vm, id, "KILL").returncode == 0
    assert cli(rig, "wait", vm, id).returncode == 137
    for wrong in ("ctrl-", "ab", "a,", "ctrl-1", ",".join("abcdefghijklmnopq")):
        assert cli(rig, "shell", "--detach-keys", wrong, vm).returncode == 125


def test_view(rig, vm):
    with shell(rig, vm) as t, open_terminal(rig, "attach", "--view", vm, running(rig, vm)[0]["id"]) as v:
        v.expect("$ ")
        t.send("echo for''both\n")
        v.expect("forboth")
        v.kill(signal.SIGINT)
        assert v.wait() == 130 and v.is_restored()
        t.send("exit 6\n")
        assert t.wait() == 6


# Commands beside them


def test_exec_detached(rig, vm):
    r = cli(rig, "exec", "-d", vm, "sh", "-c", "echo said; echo err >&2; exit 11")
    id = r.stdout.decode().strip()
    assert r.returncode == 0 and r.stderr == b""
    r = cli(rig, "attach", vm, id)
    assert (r.returncode, r.stdout, r.stderr) == (11, b"said\n", b"err\n")
    r = cli(rig, "exec", "-d", vm, "/nonexistent/y")
    assert r.returncode == 127 and r.stdout == b"" and b"/nonexistent/y" in r.stderr
    assert cli(rig, "exec", "-di", vm, "true").returncode == 125
    assert cli(rig, "--json", "exec", "-t", vm, "true").returncode == 125


def test_attach_to_pipes(rig, vm):
    id = cli(rig, "exec", "-d", vm, "sh", "-c", "echo one; exec sleep 100").stdout.decode().strip()
    p = subprocess.Popen(hutch("attach", vm, id), env={**os.environ, **socket_env(rig.socket)}, stdout=subprocess.PIPE)
    assert p.stdout.readline() == b"one\n"
    p.send_signal(signal.SIGINT)  # once: passed on
    assert p.wait(20) == 130
    p.stdout.close()


def test_ps_wait_signal_cancel(rig, vm):
    id = cli(rig, "exec", "-d", vm, "sh", "-c", "trap 'exit 44' USR1; while :; do sleep 0.05; done").stdout.decode().strip()
    table = cli(rig, "ps", vm).stdout.decode()
    assert table.startswith("EXEC") and f"\n{id} " in table and "while :" in table
    assert cli(rig, "wait", "--timeout", "50ms", vm, id).returncode == 125
    assert cli(rig, "signal", vm, id, "10").returncode == 0
    assert cli(rig, "wait", vm, id).returncode == 44
    assert cli(rig, "signal", vm, id, "NOSUCH").returncode == 1
    assert cli(rig, "signal", vm, id, "99").returncode == 2
    for args in (("signal", vm, "nosuch", "TERM"), ("cancel", vm, "nosuch")):
        r = cli(rig, *args)
        assert r.returncode == 1 and b"nosuch" in r.stderr
    assert cli(rig, "attach", vm, "nosuch").returncode == 125
    id = cli(rig, "exec", "-d", vm, "sleep", "100").stdout.decode().strip()
    assert cli(rig, "cancel", "--grace", "5s", vm, id).returncode == 0
    assert cli(rig, "wait", vm, id).returncode == 143
