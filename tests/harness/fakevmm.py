#!/usr/bin/python3 -IS
# SPDX-License-Identifier: Apache-2.0
"""A VMM that boots nothing: `hutchd --test-vmm` runs it (through a wrapper that brokerrig.py writes) in the place of QEMU.

How it works: it takes the descriptors of a VMM (4 hybrid vsock, 5 QMP, 6 the library's control socket, 7 console; cwd is the
VM's run directory), starts hutch-agent as a plain process in namespaces that end with it, answers `CONNECT 520` by bridging
to that agent, and lets the agent dial vsock_521. One poll loop, standard library only, no site: it starts in some 20 ms.

Behaviour comes from a JSON file (`--conf`), read at the start:
  agent, dir        the agent's binary; a directory for its socket
  mode              "" | exit | no_qmp | qmp_hang | qmp_error (on the 2nd request) | qmp_garbage | never_ready | panic | poweroff
  agent_after_ms    start the agent that much later
  accept_after_ms   accept on the vsock socket only then
  handshake         what to do with the first connections to the vsock socket, one entry each:
                    refuse (close), close (after the CONNECT line), hang, split (OK byte by byte), joined (OK and the agent's
                    first bytes in one write), flood (1 MB without a newline), ok; then as `handshake_after` says (default ok)
  no_dial           the agent does not dial the host
  console           text for the console at the start
Every connection to the vsock socket is noted as a line of `connects.log` in dir.
"""

import json
import os
import select
import socket
import sys
import time

FD_VSOCK, FD_QMP, FD_CTL, FD_CONSOLE = 4, 5, 6, 7
AGENT_PORT = 520
CHUNK = 64 << 10


def tied():
    """
    What a command line starts with, so that its process goes with this one.

    The signal at the parent's death comes only if it dies after it was asked for: so then the parent is looked at.
    """
    return ["setpriv", "--pdeathsig", "KILL", "/bin/sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"', str(os.getpid())]


class Loop:
    """Descriptors with callbacks, and timers."""

    def __init__(self):
        self.poll = select.poll()
        self.handlers = {}
        self.timers = []

    def watch(self, fd, events, handler):
        self.handlers[fd] = handler
        self.poll.register(fd, events)

    def forget(self, fd):
        if self.handlers.pop(fd, None):
            self.poll.unregister(fd)

    def after(self, ms, action):
        timer = [time.monotonic() + ms / 1000, action]
        self.timers.append(timer)
        return timer

    def cancel(self, timer):
        if timer in self.timers:
            self.timers.remove(timer)

    def run(self):
        while True:
            now = time.monotonic()
            for timer in [t for t in self.timers if t[0] <= now]:
                self.cancel(timer)
                timer[1]()
            wait = min((t[0] for t in self.timers), default=None)
            timeout = None if wait is None else max(int((wait - time.monotonic()) * 1000) + 1, 0)
            for fd, events in self.poll.poll(timeout):
                handler = self.handlers.get(fd)
                if handler:
                    handler(events)


class Direction:
    """Bytes from one socket of a bridge to the other."""

    def __init__(self, source, sink):
        self.source, self.sink = source, sink
        self.data = bytearray()
        self.ended = self.passed_on = self.lost = False

    def pull(self):
        if self.ended or len(self.data) >= CHUNK:
            return
        try:
            data = self.source.recv(CHUNK)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not self.lost:
            self.data += data
        self.ended = not data

    def push(self):
        if self.data:
            try:
                del self.data[: self.sink.send(self.data)]
            except BlockingIOError:
                return
            except (BrokenPipeError, ConnectionResetError):
                self.lost = True  # what comes from here on is dropped; the other direction is still delivered
                self.data.clear()
        if self.ended and not self.data and not self.passed_on:
            self.passed_on = True
            if not self.lost:
                self.sink.shutdown(socket.SHUT_WR)


class Bridge:
    """A host connection and an agent connection. A half-close is passed on; a full close of the host's end resets."""

    def __init__(self, loop, host, guest, to_guest=b"", to_host=b""):
        self.loop, self.host, self.guest = loop, host, guest
        self.up, self.down = Direction(host, guest), Direction(guest, host)
        self.up.data += to_guest
        self.down.data += to_host
        for sock in (host, guest):
            sock.setblocking(False)
        self.turn()

    def turn(self, host_events=0):
        if host_events & (select.POLLHUP | select.POLLERR):
            return self.close()
        try:
            for direction in (self.up, self.down):
                direction.pull()
                direction.push()
        except OSError:
            return self.close()
        if self.down.passed_on and (self.up.passed_on or self.up.lost):
            return self.close()
        self.loop.watch(self.host.fileno(), self.wanted(self.up, self.down), self.turn)
        wanted = self.wanted(self.down, self.up)
        if wanted:
            self.loop.watch(self.guest.fileno(), wanted, lambda _: self.turn())
        else:  # a hang-up of the guest's end must not wake the loop before it can be acted on
            self.loop.forget(self.guest.fileno())

    @staticmethod
    def wanted(inward, outward):
        events = 0 if inward.ended or len(inward.data) >= CHUNK else select.POLLIN
        if outward.data or (outward.ended and not outward.passed_on):
            events |= select.POLLOUT
        return events

    def close(self):
        for sock in (self.host, self.guest):
            self.loop.forget(sock.fileno())
            sock.close()


class Lines:
    """A connection that speaks text lines."""

    def __init__(self, loop, sock, on_line, on_close):
        self.loop, self.sock, self.on_line, self.on_close = loop, sock, on_line, on_close
        self.buffer = b""
        loop.watch(sock.fileno(), select.POLLIN, self.readable)

    def readable(self, _events):
        try:
            data = self.sock.recv(CHUNK)
        except ConnectionResetError:
            data = b""
        if not data:
            return self.close()
        self.buffer += data
        while b"\n" in self.buffer and self.sock.fileno() >= 0:
            line, self.buffer = self.buffer.split(b"\n", 1)
            self.on_line(self, line)

    def send(self, data):
        try:
            self.sock.sendall(data)
        except OSError:
            self.close()

    def close(self):
        if self.sock.fileno() >= 0:
            self.loop.forget(self.sock.fileno())
            self.sock.close()
            self.on_close()


class Qmp:
    """QEMU's monitor: one client at a time; the next one waits in the backlog, as in QEMU."""

    def __init__(self, vmm, listener):
        self.vmm, self.listener = vmm, listener
        self.client = None
        self.requests = 0
        self.listen()

    def listen(self):
        self.client = None
        self.vmm.loop.watch(self.listener.fileno(), select.POLLIN, self.accept)

    def accept(self, _events):
        self.vmm.loop.forget(self.listener.fileno())
        sock, _ = self.listener.accept()
        self.client = Lines(self.vmm.loop, sock, self.line, self.listen)
        if self.vmm.mode == "qmp_hang":
            return
        if self.vmm.mode == "qmp_garbage":
            return self.client.send(b"x" * (1 << 20) + b"\n")
        version = {"qemu": {"major": 7, "minor": 2, "micro": 0}, "package": "fake"}
        self.say({"QMP": {"version": version, "capabilities": []}})

    def say(self, message):
        if self.client:
            self.client.send(json.dumps(message).encode() + b"\r\n")

    def line(self, client, line):
        try:
            request = json.loads(line)
        except ValueError:
            return self.say({"error": {"class": "GenericError", "desc": "not JSON"}})
        self.requests += 1
        answer = self.answer(request.get("execute"))
        if self.vmm.mode == "qmp_error" and self.requests == 2:
            answer = {"error": {"class": "GenericError", "desc": "refused as scripted"}}
        if "id" in request:
            answer["id"] = request["id"]
        self.say(answer)
        if request.get("execute") == "quit":
            self.vmm.leave("host-qmp-quit")

    def answer(self, command):
        if command == "query-status":
            return {"return": {"status": "running", "singlestep": False, "running": True}}
        if command == "query-version":
            return {"return": {"qemu": {"major": 7, "minor": 2, "micro": 0}, "package": "fake"}}
        if command in ("qmp_capabilities", "quit", "stop", "cont", "system_powerdown"):
            return {"return": {}}
        return {"error": {"class": "CommandNotFound", "desc": "The command %s has not been found" % command}}


class Vmm:
    def __init__(self, conf):
        self.conf = conf
        self.mode = conf.get("mode", "")
        self.loop = Loop()
        self.agent_pid = 0
        self.agent_socket = os.path.join(conf["dir"], "a%d" % os.getpid())
        self.handshakes = list(conf.get("handshake", []))
        self.rundir = os.path.join(conf["dir"], "r%d" % os.getpid())
        self.ports = 1 << 30
        self.deadline = None
        self.held = []

    def run(self):
        if self.mode == "exit":
            sys.stderr.write("fake VMM: refusing to start, as scripted\n")
            sys.exit(3)
        os.write(FD_CONSOLE, self.conf.get("console", "fake guest: booting\n").encode())
        if self.mode != "no_qmp":
            self.qmp = Qmp(self, socket.socket(fileno=FD_QMP))
        ctl = socket.socket(fileno=FD_CTL)
        self.loop.watch(ctl.fileno(), select.POLLIN, lambda _: self.accept_ctl(ctl))
        self.renew(int(os.environ.get("HUTCH_DEADLINE_MS") or 0))
        self.vsock = socket.socket(fileno=FD_VSOCK)
        self.loop.after(self.conf.get("accept_after_ms", 0), self.listen_vsock)
        if self.mode == "panic":
            os.write(FD_CONSOLE, b"Kernel panic - not syncing: as scripted\n")
        elif self.mode == "poweroff":
            self.loop.after(50, lambda: self.leave("guest-shutdown"))
        elif self.mode not in ("never_ready", "no_qmp", "qmp_hang", "qmp_garbage"):
            self.loop.after(self.conf.get("agent_after_ms", 0), self.start_agent)
        self.loop.run()

    def leave(self, reason):
        """As QEMU does when the guest powered off or the host asked."""
        if getattr(self, "qmp", None):
            self.qmp.say({"event": "SHUTDOWN", "data": {"guest": reason.startswith("guest"), "reason": reason},
                          "timestamp": {"seconds": int(time.time()), "microseconds": 0}})
        self.remove_files()
        os._exit(0)

    def remove_files(self):
        for path in (self.agent_socket, self.rundir):
            try:
                os.unlink(path)
            except OSError:
                pass

    # the guest

    def start_agent(self):
        os.symlink(os.getcwd(), self.rundir)  # the run directory's own path may be too long for sun_path
        dial = [] if self.conf.get("no_dial") else ["--dial", self.rundir + "/vsock_521"]
        agent = [self.conf["agent"], "--unix", self.agent_socket] + dial + self.conf.get("agent_args", [])
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        argv = [*tied(), "unshare", *user, "--pid", "--mount", "--uts", "--fork",
                "--kill-child=KILL", "--mount-proc", "/bin/sh", "-c", '"$@"; :', "agent", *agent]
        console = [(os.POSIX_SPAWN_DUP2, FD_CONSOLE, 1), (os.POSIX_SPAWN_DUP2, FD_CONSOLE, 2)]
        closes = [(os.POSIX_SPAWN_CLOSE, fd) for fd in (3, 4, 5, 6, 7)]
        env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}
        self.agent_pid = os.posix_spawnp(argv[0], argv, env, file_actions=console + closes)
        pidfd = os.pidfd_open(self.agent_pid)
        self.loop.watch(pidfd, select.POLLIN, lambda _: self.leave("guest-shutdown"))

    def dial_agent(self):
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(self.agent_socket)
        except OSError:
            sock.close()
            return None
        return sock

    # hybrid vsock

    def listen_vsock(self):
        self.loop.watch(self.vsock.fileno(), select.POLLIN, lambda _: self.accept_vsock())

    def accept_vsock(self):
        sock, _ = self.vsock.accept()
        action = self.handshakes.pop(0) if self.handshakes else self.conf.get("handshake_after", "ok")
        with open(os.path.join(self.conf["dir"], "connects.log"), "a") as log:
            log.write("%d %.3f %s\n" % (os.getpid(), time.monotonic(), action))
        if action == "refuse":
            return sock.close()
        Handshake(self, sock, action)

    # the library's control socket

    def accept_ctl(self, listener):
        sock, _ = listener.accept()
        Lines(self.loop, sock, self.ctl_line, lambda: None)

    def ctl_line(self, client, line):
        words = line.split()
        if words[:1] == [b"renew"] and len(words) == 2 and words[1].isdigit():
            self.renew(int(words[1]))
            client.send(b"ok\n")
        elif words == [b"status"]:
            client.send(b"ok connections=%d\n" % len(self.held))
        else:
            client.send(b"err unknown command\n")

    def renew(self, ms):
        if self.deadline:
            self.loop.cancel(self.deadline)
        self.deadline = self.loop.after(ms, self.expire) if ms else None

    def expire(self):
        sys.stderr.write("fake VMM: deadline passed\n")
        self.remove_files()
        os._exit(0)


class Handshake:
    """One host connection until its CONNECT line is answered."""

    def __init__(self, vmm, sock, action):
        self.vmm, self.sock, self.action = vmm, sock, action
        self.buffer = b""
        sock.setblocking(False)
        vmm.loop.watch(sock.fileno(), select.POLLIN, self.readable)

    def readable(self, _events):
        try:
            data = self.sock.recv(CHUNK)
        except OSError:
            data = b""
        if not data:
            return self.close()
        self.buffer += data
        if b"\n" in self.buffer:
            line, rest = self.buffer.split(b"\n", 1)
            self.vmm.loop.forget(self.sock.fileno())
            self.answer(line, rest)

    def close(self):
        self.vmm.loop.forget(self.sock.fileno())
        self.sock.close()

    def answer(self, line, rest):
        if self.action == "hang":
            self.vmm.held.append(self.sock)
            return
        if self.action == "flood":
            self.sock.setblocking(True)
            self.sock.settimeout(5)
            try:
                self.sock.sendall(b"OK " + b"1" * (1 << 20))
            except OSError:
                pass
            return self.close()
        agent = None
        if self.action != "close" and line == b"CONNECT %d" % AGENT_PORT:
            agent = self.vmm.dial_agent()
        if agent is None:
            return self.close()
        self.vmm.ports += 1
        ok = b"OK %d\n" % self.vmm.ports
        if self.action == "joined":
            ok += agent.recv(CHUNK)  # the agent's HELLO
        if self.action == "split":
            return self.split(ok, agent, rest)
        Bridge(self.vmm.loop, self.sock, agent, to_guest=rest, to_host=ok)

    def split(self, ok, agent, rest):
        if ok:
            self.sock.send(ok[:1])
            self.vmm.loop.after(2, lambda: self.split(ok[1:], agent, rest))
        else:
            Bridge(self.vmm.loop, self.sock, agent, to_guest=rest)


if __name__ == "__main__":
    with open(sys.argv[sys.argv.index("--conf") + 1]) as conf_file:
        Vmm(json.load(conf_file)).run()
