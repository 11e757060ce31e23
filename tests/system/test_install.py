# SPDX-License-Identifier: Apache-2.0
"""What `cmake --install` puts somewhere is all that it takes: a broker, a template built there, a VM, a C program."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import images
import procs
import pytest

PROGRAM = """
#include <stdio.h>
#include <hutch.h>

static int out(void *arg, const void *data, size_t len)
{
	(void)arg;
	return fwrite(data, 1, len, stdout) == len ? 0 : -1;
}

int main(int argc, char **argv)
{
	const struct hutch_exec_options options = {.shell = "echo from $(cat /proc/1/comm)"};
	const struct hutch_exec_handlers handlers = {.on_stdout = out};
	struct hutch_exec_result result;
	struct hutch_failure why;
	struct hutch *h = hutch_open(argv[1], NULL, &why);

	if (argc != 3 || h == NULL || hutch_exec(h, argv[2], &options, &handlers, 60000, &result, &why) < 0) {
		fprintf(stderr, "%s\\n", why.message);
		return 125;
	}
	hutch_close(h);
	return result.exit_code;
}
"""


def run(*argv: object, **more) -> str:
    r = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=300, **more)
    assert r.returncode == 0, r.stderr
    return r.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory) -> Path:
    """Of the release build: it is the one that is installed, and whose agent can be an image's init."""
    place = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", images.static_agent().parent.parent, "--prefix", place)
    return place


def test_the_image_builder_is_whole(prefix):
    there = procs.ROOT / "rootfs"
    mine = {p.relative_to(there) for p in there.rglob("*") if p.is_file() and "__pycache__" not in p.parts} - {Path("CMakeLists.txt")}
    installed = prefix / "share" / "hutch" / "rootfs"
    assert {p.relative_to(installed) for p in installed.rglob("*") if p.is_file()} == mine
    assert all(os.access(installed / p, os.X_OK) == os.access(there / p, os.X_OK) for p in mine)


def test_from_nothing_to_a_command(prefix, tmp_path):
    socket = tmp_path / "s"
    tool = [prefix / "bin" / "hutch", "--socket", socket]
    ready, ready_write = os.pipe()
    with open(tmp_path / "log", "w") as log:
        broker = subprocess.Popen(
            [prefix / "bin" / "hutchd", "--socket", socket, "--state", tmp_path / "state", "--accel", "tcg", "--ready-fd", str(ready_write)],
            pass_fds=[ready_write], stdout=log, stderr=log,
        )
    os.close(ready_write)
    try:
        assert os.read(ready, 1) == b"\n", (tmp_path / "log").read_text()
        run(*tool, "template", "build", "base")
        assert str(prefix) in run(*tool, "doctor")
        vm = run(*tool, "create").strip()
        assert run(*tool, "exec", vm, "--", "cat", "/proc/1/comm") == "hutch-agent\n"
        (tmp_path / "c.c").write_text(PROGRAM)
        env = {**os.environ, "PKG_CONFIG_PATH": str(next(prefix.rglob("hutch.pc")).parent)}
        flags = run("pkg-config", "--cflags", "--libs", "hutch", env=env).split()
        run("cc", "-o", tmp_path / "c", tmp_path / "c.c", *flags)
        libraries = next(prefix.rglob("libhutch.so")).parent
        assert run(tmp_path / "c", socket, vm, env={"LD_LIBRARY_PATH": str(libraries)}) == "from hutch-agent\n"
        run(*tool, "kill", "--all")
    finally:
        os.close(ready)
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(20) == 0
    assert not list((tmp_path / "state" / "vm").iterdir())
