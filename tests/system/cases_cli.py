# SPDX-License-Identifier: Apache-2.0
"""The hutch command: exit status, streams, options. What the cases say of the CLI; on every rig with a broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest

import procs
from box import Box


class CliCases:
    def exec(self, box: Box, *args: str, **options):
        return box.cli("exec", *args, **options)

    @pytest.mark.parametrize(
        "script, status",
        [("kill -9 $$", 137), ("kill -TERM $$", 143), ("exit 137", 137), ("exit 256", 0), ("exit 7", 7), ("exit 127", 127), ("exit 125", 125)],
    )
    def test_c028_exit_status_is_the_commands(self, box: Box, script, status):
        """C028: the CLI's exit status equals the result's exit code."""
        assert self.exec(box, box.vm, "--", "sh", "-c", script).returncode == status
        assert box.exec(["sh", "-c", script]).exit_code == status

    def test_c029_not_started(self, box: Box):
        """C029: 127 and 126 with a text that says why; 125 when hutch itself failed."""
        r = self.exec(box, box.vm, "--", "/nonexistent")
        assert r.returncode == 127 and b"/nonexistent" in r.stderr and r.stdout == b""
        r = self.exec(box, box.vm, "--", "/etc/passwd")
        assert r.returncode == 126 and b"/etc/passwd" in r.stderr
        r = self.exec(box, "no-such-vm", "--", "true")
        assert r.returncode == 125 and b"no-such-vm" in r.stderr
        r = self.exec(box, box.vm)
        assert r.returncode == 125 and r.stderr
        r = self.exec(box, "-u", "nosuch", box.vm, "--", "true")
        assert r.returncode == 125 and b"nosuch" in r.stderr

    def test_c023_bad_working_directory(self, box: Box):
        """C023: shell form with a missing directory: an error, and no `marker` anywhere."""
        r = self.exec(box, "-w", "/no/such", "--shell", "true; printf x > marker", box.vm)
        assert r.returncode in (126, 127) and b"/no/such" in r.stderr
        assert box.exec("ls -d marker /marker").stdout == ""
        assert self.exec(box, "-w", "/tmp", box.vm, "pwd").stdout == b"/tmp\n"

    def test_c024_timeout_is_124(self, box: Box):
        """C024: status 124 with the output before it, also when the command leaves with 0 on the signal."""
        with box.within(4):
            r = self.exec(box, "--timeout", "1", box.vm, "--", "sh", "-c", "echo a; echo b >&2; sleep 60")
        assert r.returncode == 124 and r.stdout == b"a\n" and r.stderr.startswith(b"b\n")
        assert self.exec(box, "--timeout", "1", box.vm, "--", "sh", "-c", "trap 'exit 0' TERM; sleep 61.25 & wait").returncode == 124
        box.gone("sleep 61.25", 2)

    def test_c005_bytes_pass_through(self, box: Box):
        """C005: characters cut at a read boundary, and binary output."""
        script = "printf 'a%.0s' $(seq 8191); printf '\\342\\202\\254'"
        assert self.exec(box, box.vm, "--", "sh", "-c", script).stdout == b"a" * 8191 + "€".encode()
        assert self.exec(box, box.vm, "--", "printf", "\\000\\377\\376\\r\\n").stdout == b"\x00\xff\xfe\r\n"

    def test_c004_whole_output(self, box: Box):
        for _ in range(box.n(10, 2)):
            out = self.exec(box, box.vm, "--", "sh", "-c", "seq 1 200000; printf END").stdout
            assert len(out) == 1288898 and out.endswith(b"END")

    def test_c074_environment(self, box: Box):
        """C074: `-e K=V=W` sets V=W; values with spaces, newlines, and empty ones."""
        args = ["-e", "A=x=y=z", "-e", "B=l1\nl2", "-e", "C=", "-e", "D=hello world", "-e", "INHERITED"]
        out = self.exec(box, *args, box.vm, "--", "env", "-0", env={"INHERITED": "from me"}).stdout.split(b"\0")
        for want in (b"A=x=y=z", b"B=l1\nl2", b"C=", b"D=hello world", b"INHERITED=from me"):
            assert want in out
        assert self.exec(box, "-e", "=x", box.vm, "true").returncode == 125

    def test_stdin_only_with_i(self, box: Box):
        assert self.exec(box, box.vm, "cat", input=b"hello").stdout == b""
        assert self.exec(box, "-i", box.vm, "cat", input=b"hello").stdout == b"hello"
        data = os.urandom(4 << 20 if box.kind != "vm" else 1 << 20)
        assert self.exec(box, "-i", box.vm, "cat", input=data).stdout == data
        assert self.exec(box, "-i", box.vm, "--", "sh", "-c", "exit 3", input=data).returncode == 3

    def test_options_after_the_id_belong_to_the_command(self, box: Box):
        assert self.exec(box, box.vm, "echo", "-w", "--json").stdout == b"-w --json\n"
        assert self.exec(box, box.vm, "--", "echo", "--").stdout == b"--\n"

    def test_output_comes_while_the_command_runs(self, box: Box):
        client = subprocess.Popen(
            [procs.binary("hutch"), "exec", "-i", box.vm, "--", "sh", "-c", "echo first; read x; echo got $x"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "HUTCH_SOCKET": box.socket},
        )
        assert client.stdout.readline() == b"first\n"
        client.stdin.write(b"it\n")
        client.stdin.close()
        assert client.stdout.read() == b"got it\n" and client.wait(20) == 0
        client.stdout.close()

    def test_closed_standard_descriptors(self, box: Box):
        """The result is still the command's; only what was for a closed standard output is lost, which is told."""
        def sh(words, script):
            return subprocess.run(
                ["sh", "-c", f'exec "$0" exec {words} {box.vm} -- sh -c "$1"', procs.binary("hutch"), script],
                input=b"", capture_output=True, timeout=60, env={**os.environ, "HUTCH_SOCKET": box.socket},
            )

        r = sh("2>&-", "echo out; echo err >&2; exit 3")
        assert (r.returncode, r.stdout, r.stderr) == (3, b"out\n", b"")
        assert sh("-i <&- 2>&-", "cat; exit 4").returncode == 4
        assert sh(">&-", "exit 5").returncode == 5
        r = sh(">&-", "echo out; exit 6")
        assert r.returncode == 125 and b"standard output" in r.stderr

    def test_ctrl_c_once_interrupts_twice_kills(self, box: Box):
        def start(script):
            client = subprocess.Popen(
                [procs.binary("hutch"), "exec", box.vm, "--", "sh", "-c", script], stdout=subprocess.PIPE,
                env={**os.environ, "HUTCH_SOCKET": box.socket},
            )
            assert client.stdout.readline() == b"up\n"
            return client

        client = start("trap 'echo interrupted; exit 9' INT; echo up; while :; do sleep 0.05; done")
        client.send_signal(signal.SIGINT)
        assert client.stdout.read() == b"interrupted\n" and client.wait(20) == 9
        client.stdout.close()
        mark = f"0.0{time.monotonic_ns() % 10**9}"
        client = start(f"trap 'echo one' INT; echo up; while :; do sleep {mark}; done")
        client.send_signal(signal.SIGINT)
        assert client.stdout.readline() == b"one\n"
        client.send_signal(signal.SIGINT)
        assert client.wait(20) == 137
        client.stdout.close()
        box.gone(mark, 3)

    def test_killed_client_takes_its_command_with_it(self, box: Box):
        mark = f"60.4{time.monotonic_ns() % 10**9}"
        client = subprocess.Popen(
            [procs.binary("hutch"), "exec", box.vm, "--", "sh", "-c", f"echo up; sleep {mark}"], stdout=subprocess.PIPE,
            env={**os.environ, "HUTCH_SOCKET": box.socket},
        )
        assert client.stdout.readline() == b"up\n"
        client.kill()
        client.wait()
        client.stdout.close()
        box.gone(f"sleep {mark}", 3)

    def test_closed_output_ends_the_command(self, box: Box):
        """A reader that goes away (head): the CLI ends, and so does the command."""
        mark = f"y{time.monotonic_ns()}"
        client = subprocess.Popen(
            [procs.binary("hutch"), "exec", box.vm, "--", "yes", mark], stdout=subprocess.PIPE,
            env={**os.environ, "HUTCH_SOCKET": box.socket},
        )
        assert client.stdout.readline() == mark.encode() + b"\n"
        client.stdout.close()
        assert client.wait(20) != 0
        box.gone(f"yes {mark}", 3)

    def test_create_ls_info_ttl_kill(self, box: Box):
        name = f"cli{time.monotonic_ns()}"
        r = box.cli("create", "--ttl", "5m", "--name", name, "--meta", "k=v=w")
        id = r.stdout.decode().strip()
        assert r.returncode == 0 and len(id) == 36 and r.stdout.decode() == id + "\n"
        assert id in box.cli("ls").stdout.decode() and name in box.cli("ls").stdout.decode()
        info = json.loads(box.cli("info", "--json", name).stdout)
        assert info["id"] == id and info["metadata"] == {"k": "v=w"} and info["state"] == "running"
        assert 290000 < info["expires_in_ms"] <= 300000
        assert box.cli("ttl", name, "2m").returncode == 0
        assert json.loads(box.cli("info", "--json", id).stdout)["expires_in_ms"] <= 120000
        again = box.cli("create", "--name", name)
        assert again.returncode != 0 and again.stdout == b"" and name.encode() in again.stderr
        assert box.cli("kill", id).returncode == 0
        assert id not in box.cli("ls").stdout.decode()
        assert box.cli("info", "no-such-vm").returncode != 0

    def test_run_throws_the_vm_away(self, box: Box):
        before = {v.id for v in box.client.vms()}
        r = box.cli("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
        assert (r.returncode, r.stdout, r.stderr) == (7, b"out\n", b"err\n")
        assert box.cli("run", "-i", "cat", input=b"x" * 100000).stdout == b"x" * 100000
        assert box.cli("run", "--timeout", "1", "sleep", "60").returncode == 124
        assert box.cli("run", "-t", "nosuch", "true").returncode == 125
        assert {v.id for v in box.client.vms()} == before

    def test_json_output(self, box: Box):
        result = json.loads(self.exec(box, "--json", box.vm, "--", "sh", "-c", "echo hi; exit 3").stdout)
        assert result["exit_code"] == 3 and result["stdout"] == "hi\n"
        assert isinstance(json.loads(box.cli("ls", "--json").stdout), (list, dict))
        assert isinstance(json.loads(box.cli("template", "ls", "--json").stdout), (list, dict))

    def test_help_of_every_verb_and_unknown_ones(self, box: Box):
        for verb in ("create", "exec", "run", "ls", "info", "kill", "ttl", "doctor"):
            r = box.cli(verb, "--help")
            assert r.returncode == 0 and r.stdout.startswith(b"usage: hutch " + verb.encode())
        assert box.cli("nosuch").returncode not in (0, 1)

    def test_no_broker_is_told_with_the_socket(self, box: Box):
        r = box.cli("ls", env={"HUTCH_SOCKET": "/no/such/socket"})
        assert r.returncode != 0 and b"/no/such/socket" in r.stderr
        assert box.cli("exec", "x", "true", env={"HUTCH_SOCKET": "/no/such/socket"}).returncode == 125
