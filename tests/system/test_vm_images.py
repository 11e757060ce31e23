# SPDX-License-Identifier: Apache-2.0
"""What the agent makes of images that hold next to nothing, in real VMs (cases C055 and C058)."""

from __future__ import annotations

import hashlib
import shutil

import pytest

import images
import roots
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


@pytest.fixture(scope="module")
def disks(tmp_path_factory):
    """A template with a root disk, made from a tar archive, and one whose disk is no file system."""
    templates, work = tmp_path_factory.mktemp("templates"), tmp_path_factory.mktemp("root")
    images.build_template("disk", templates, "--from", roots.write(work / "root.tar.gz", "w:gz"), "--like", "base")
    shutil.copytree(templates / "disk", templates / "broken")
    images.replace_file(templates / "broken", "root.erofs", b"\0" * 65536)
    with BrokerRig(fake=False, templates=templates) as rig:
        yield rig


@pytest.mark.limit(180)
def test_a_root_disk_is_what_the_archive_was(disks):
    with disks.create(template="disk") as vm:
        assert vm.client.call("agent.info", vm=vm.id)["failures"] == []
        text = vm.exec("cat /proc/mounts").stdout
        assert mounts(text)["/"][0] == "overlay"
        check_mounts(text)
        stat = vm.exec("stat -c '%n %a %u:%g %h %F' /etc/owned /etc/again /srv/drop /srv/pipe /srv/zero; stat -c %Y /etc/owned")
        assert stat.stdout.splitlines() == [
            "/etc/owned 4750 1234:70000 2 regular file", "/etc/again 4750 1234:70000 2 regular file",
            "/srv/drop 1777 5:6 2 directory", "/srv/pipe 600 0:0 1 fifo", "/srv/zero 666 0:0 1 character special file", "1000000000"]
        sums = vm.exec("cd /data && sha256sum " + " ".join(map(str, roots.SIZES))).stdout
        assert sums.splitlines() == [f"{hashlib.sha256(roots.content(size)).hexdigest()}  {size}" for size in roots.SIZES]
        assert vm.exec("note /srv/capable trusted.note").stdout == "kept"
        names = vm.exec("ls /many").stdout.split()
        assert len(names) == roots.MANY + 1 and vm.exec(f"cat /many/{'n' * 255}").stdout == "long\n"
        said = vm.exec("cat /outside /data/replaced; readlink /bin; grep -c localhost /etc/hosts; dd if=/srv/zero bs=8 count=1 2>/dev/null | sha256sum")
        assert said.stdout.splitlines()[:4] == ["not outside", "new", "usr/bin", "2"]
        assert said.stdout.split()[-2] == hashlib.sha256(bytes(8)).hexdigest()


@pytest.mark.limit(180)
def test_what_is_written_over_a_root_disk_is_bounded_and_its_own(disks):
    with disks.create(template="disk") as vm, disks.create(template="disk") as other:
        full = vm.exec("echo changed > /etc/owned; cat /etc/owned; dd if=/dev/zero of=/fill bs=1M count=400 2>&1")
        assert full.stdout.startswith("changed\n") and "No space left" in full.stdout and full.exit_code == 1
        assert vm.exec("cat /etc/owned").stdout == "changed\n"
        assert other.exec("cat /etc/owned").stdout == "mine\n"


@pytest.mark.limit(180)
def test_a_root_disk_that_is_none_is_told(disks):
    with disks.create(template="broken") as vm:
        failures = vm.client.call("agent.info", vm=vm.id)["failures"]
        assert len(failures) == 1 and failures[0].startswith("root disk /dev/vda: mount")


DEBIAN = r"""
set -e
[ "$(python3 -c 'print(6 * 7)')" = 42 ]
python3 -c 'import sys, json; sys.exit(json.__cached__ is None)'
git init -q /tmp/repo && cd /tmp/repo && echo x > a && git add a && git -c user.name=n -c user.email=e commit -qm one && git log --oneline
curl --version > /dev/null
[ "$(ldconfig -p | grep -c 'libc.so.6 ')" = 1 ]
[ "$(bash -lc 'echo $BASH; awk "BEGIN { print 7 }"' | tr '\n' ' ')" = "/usr/bin/bash 7 " ]
[ "$(su app -c 'id -un; cd; pwd' | tr '\n' ' ')" = "app /home/app " ]
[ "$(stat -c '%a %G' /etc/shadow)" = "640 shadow" ]
mkdir /tmp/low /tmp/up /tmp/work /tmp/merged && echo below > /tmp/low/f
mount -t overlay -o lowerdir=/tmp/low,upperdir=/tmp/up,workdir=/tmp/work overlay /tmp/merged && cat /tmp/merged/f
truncate -s 8M /tmp/image && mkfs.ext4 -q /tmp/image && mkdir /tmp/loop && mount -o loop /tmp/image /tmp/loop && rmdir /tmp/loop/lost+found
nft add table inet t && nft add chain inet t c '{ type filter hook input priority 0; }' && nft add rule inet t c tcp dport 22 counter drop
nft list ruleset | grep -q 'tcp dport 22'
: < /dev/fuse && grep -q fuse /proc/filesystems && ls /dev/net/tun
"""


@pytest.mark.limit(600)
@pytest.mark.skipif(not images.is_cached("debian"), reason="hutch template build debian was never run here, and it downloads 60 MB")
def test_debian(tmp_path):
    images.build_template("debian", tmp_path)
    with BrokerRig(fake=False, templates=tmp_path) as rig, rig.create(template="debian") as vm:
        assert vm.client.call("agent.info", vm=vm.id)["failures"] == []
        said = vm.exec(DEBIAN)
        assert (said.exit_code, said.stderr) == (0, ""), said
        assert said.stdout.splitlines()[-2:] == ["below", "/dev/net/tun"]
