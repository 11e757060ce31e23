# SPDX-License-Identifier: Apache-2.0
"""What the agent makes of images that hold next to nothing, in real VMs (cases C055 and C058)."""

from __future__ import annotations

import shutil

import pytest

import images
from brokerrig import BrokerRig

# Prints the files that are named, else "hello". Nothing of it needs anything of the image.
HELLO = r"""
#include <fcntl.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	char buf[4096];
	ssize_t n;

	if (argc == 1)
		return write(1, "hello\n", 6) == 6 ? 0 : 1;
	for (int i = 1; i < argc; i++) {
		int fd = open(argv[i], O_RDONLY);

		if (fd < 0)
			return 9;
		while ((n = read(fd, buf, sizeof(buf))) > 0)
			if (write(1, buf, n) != n)
				return 1;
	}
	return 0;
}
"""


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    templates, work = tmp_path_factory.mktemp("templates"), tmp_path_factory.mktemp("manifests")
    images.build_empty("bare", templates, work)
    images.build_empty("hello", templates, work, HELLO)
    shutil.copytree(images.base_templates() / "base", templates / "base")
    with BrokerRig(fake=False, templates=templates) as rig:
        yield rig


def mounts(text: str) -> dict[str, tuple[str, str]]:
    """mount point -> (type, options), the topmost where there are several."""
    rows = (line.split() for line in text.splitlines())
    return {where: (kind, options) for _, where, kind, options, *_ in rows}


@pytest.mark.limit(180)
def test_c055_nothing_but_init(rig):
    with rig.create(template="bare") as vm:
        told = vm.client.call("agent.info", vm=vm.id)
        assert told["pid1"] and told["failures"] == []
        gone = vm.exec(["/bin/true"])
        assert gone.start_error is not None and gone.exit_code == 127


@pytest.mark.limit(180)
def test_c058_one_static_program(rig):
    with rig.create(template="hello") as vm:
        assert vm.client.call("agent.info", vm=vm.id)["failures"] == []
        said = vm.exec(["/hello"])
        assert (said.exit_code, said.stdout, said.stderr) == (0, "hello\n", "")
        assert vm.exec(["sh"]).exit_code == 127
        assert vm.exec("echo this wants a shell").exit_code == 127
        check_mounts(vm.exec(["/hello", "/proc/mounts"]).stdout)
        assert "127.0.0.1" in vm.exec(["/hello", "/proc/net/fib_trie"]).stdout
        assert vm.exec(["/hello", "/proc/1/comm"]).stdout == "hutch-agent\n"
        assert vm.exec(["/hello", "/dev/null", "/etc/machine-id"]).exit_code == 0


def check_mounts(text: str) -> None:
    found = mounts(text)
    wanted = {"/proc": "proc", "/sys": "sysfs", "/dev": "devtmpfs", "/dev/pts": "devpts", "/dev/shm": "tmpfs",
              "/run": "tmpfs", "/tmp": "tmpfs", "/sys/fs/cgroup": "cgroup2"}
    assert {where: found[where][0] for where in wanted if where in found} == wanted


@pytest.mark.limit(180)
def test_c055_what_programs_expect_is_there(rig):
    with rig.create(template="base") as vm:
        assert vm.client.call("agent.info", vm=vm.id)["failures"] == []
        check_mounts(vm.exec("cat /proc/mounts").stdout)
        both = vm.exec("echo x > /dev/shm/a && cat /dev/shm/a; echo y > /dev/stderr")
        assert (both.stdout, both.stderr) == ("x\n", "y\n")
        modes = vm.exec("stat -c '%a %n' /dev/shm /tmp /run /dev/null /dev/ptmx; ls -d /dev/fd /root /home/app")
        assert modes.stdout.splitlines() == ["1777 /dev/shm", "1777 /tmp", "755 /run", "666 /dev/null", "666 /dev/ptmx",
                                             "/dev/fd", "/home/app", "/root"]
        assert vm.exec("ping -c 1 127.0.0.1 && ping -c 1 ::1").exit_code == 0
        assert vm.exec("cd && pwd && id -un", user="app").stdout == "/home/app\napp\n"
        assert "vsock" in vm.exec("cat /proc/net/protocols; ls /sys/module").stdout


@pytest.mark.limit(180)
def test_random_numbers_are_there_before_init(rig):
    """Left to itself the kernel needs a second of jitter under TCG, which the first getrandom() would wait for."""
    with rig.create(template="base") as vm:
        said = vm.exec("dmesg").stdout
        assert said.index("crng init done") < said.index("Run /init as init process")
