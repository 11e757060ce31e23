#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A guest's agent that boots like a good one and then lies. The fake VMM starts it in the place of hutch-agent.

Pings and the identity are answered well unless the mode says otherwise, so that the VM comes up and stays; every other call is
answered as the mode says:
  length     a frame that claims 4 GiB            garbage   random bytes
  flood      output for ever, no RESULT           events    EVENTs for ever
  unasked    RESULTs before and after the call    twice     two RESULTs and an ERROR for one call
  mute       nothing, ever                        half      half a frame, then a byte now and then
  reset      half a frame, then a reset           types     frames that only a caller may send
  forged     a HELLO of another boot              swapped   the answer on the connection of another call, with its id
  frozen     no answer to snapshot.prepare        thawed    one that says it is held, and goes on as before
  ports      dials every port of the host, over and over
The identity is answered by id_error: an ERROR, id_garbage: random bytes, id_flood: output for ever, id_mute: nothing,
id_other: the RESULT of something else, many times. Such a VM must not come up.
At the start, before the hello: `storm` dials the host 10 000 times and says nothing.
"""

import os
import socket
import struct
import sys
import threading
import time
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "python"))
from hutch import wire  # noqa: E402

BOOT = str(uuid.uuid4())
generation = 0
connections: list = []
OUT = wire.encode_frame(wire.STDOUT, b"x" * 65536)


def hello(boot=BOOT):
    return wire.encode_frame(wire.HELLO, wire.encode_map(
        {"proto": 1, "role": "agent", "name": "hutch-agent/hostile", "boot_id": boot, "generation": generation}))


def result(**fields):
    return wire.encode_frame(wire.RESULT, wire.encode_map(fields), wire.END)


def error():
    return wire.encode_frame(wire.ERROR, wire.encode_map({"kind": "io", "message": "as scripted"}), wire.END)


def misbehave(sock, mode):
    exec_result = result(id="e1", pid=42, started=True, exit_code=0)
    if mode == "length":
        sock.sendall(struct.pack(">IBBH", 0xFFFFFFFF, wire.STDOUT, 0, 0) + b"x" * 4096)
    elif mode == "garbage":
        sock.sendall(os.urandom(65536))
    elif mode == "flood":
        while True:
            sock.sendall(OUT)
    elif mode == "events":
        event = wire.encode_frame(wire.EVENT, wire.encode_map({"event": "started", "id": "e1", "pid": 1})) * 100
        while True:
            sock.sendall(event)
    elif mode == "unasked":
        sock.sendall(exec_result * 50)
    elif mode == "twice":
        sock.sendall(exec_result + exec_result + error())
    elif mode == "half":
        frame = OUT[:100]
        for byte in frame:
            sock.sendall(bytes([byte]))
            time.sleep(0.05)
        time.sleep(3600)
    elif mode == "reset":
        sock.sendall(OUT[:5])
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
    elif mode == "swapped":
        others = [s for s in connections if s is not sock]
        for s in others or [sock]:
            s.sendall(result(id="e2", pid=1, started=True, exit_code=7))
    elif mode == "types":
        sock.sendall(wire.encode_frame(wire.CALL, wire.encode_map({"method": "vm.kill", "params": {"all": True}}), wire.END))
    else:
        time.sleep(3600)


def misidentify(sock, mode):
    if mode == "id_error":
        sock.sendall(error())
    elif mode == "id_garbage":
        sock.sendall(os.urandom(4096))
    elif mode == "id_flood":
        while True:
            sock.sendall(OUT)
    elif mode == "id_other":
        sock.sendall(wire.encode_frame(wire.RESULT, b"\xc1" * 8, wire.END) * 50)
    else:
        time.sleep(3600)


def dial_ports(path):
    prefix = path[: path.rindex("_") + 1]
    while True:
        for port in range(65536):
            try:
                dial(prefix + str(port)).close()
            except OSError:
                pass


def serve(sock, mode, first):
    """One connection, as its callee."""
    global generation
    decoder = wire.FrameDecoder()
    connections.append(sock)
    try:
        sock.sendall(first)
        while True:
            data = sock.recv(65536)
            if not data:
                return
            for frame in decoder.feed(data):
                if frame.type != wire.CALL:
                    continue
                call = wire.decode_map(frame.payload)
                if call["method"] == "agent.identity" and mode.startswith("id_"):
                    misidentify(sock, mode)
                elif call["method"] == "snapshot.prepare" and mode == "thawed":
                    sock.sendall(result(generation=generation + 7, frozen=1 << 40))
                elif call["method"] == "agent.identity":
                    generation = call["params"]["generation"]
                    sock.sendall(result(generation=generation))
                elif call["method"] == "ping" and mode != "mute":
                    sock.sendall(result())
                else:
                    misbehave(sock, mode)
    except OSError:
        pass
    finally:
        connections.remove(sock)
        sock.close()


def dial(path):
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    return sock


def start(*args):
    threading.Thread(target=serve, args=args, daemon=True).start()


def main():
    options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
    mode = options.get("--mode", "")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(options["--unix"])
    listener.listen(64)
    if mode == "storm":
        held = []
        for i in range(10000):
            try:
                held.append(dial(options["--dial"]))
            except OSError:
                time.sleep(0.001)
            del held[: len(held) - 200]
        held.clear()
    start(dial(options["--dial"]), mode, hello())
    if mode == "ports":
        threading.Thread(target=dial_ports, args=(options["--dial"],), daemon=True).start()
    while True:
        sock, _ = listener.accept()
        first = hello()
        if generation and mode == "forged":
            first = hello(str(uuid.uuid4()))
        elif generation and mode == "unasked":
            first += result() * 20
        start(sock, mode, first)


if __name__ == "__main__":
    main()
