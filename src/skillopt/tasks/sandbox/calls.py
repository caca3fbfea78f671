"""Calls the C library for the sandbox, and makes the filter of system calls that a program runs under."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from typing import Any

_PR_SET_SECCOMP, _PR_NO_NEW_PRIVS = 22, 38
_CLONE3, _NEWUSER = 435, 0x10000000
_ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NUMBERS = """
clone 56 220, pivot_root 155 41, socket 41 198, memfd_create 319 279, shmget 29 194, msgget 68 186, semget 64 190,
mq_open 240 180, unshare 272 97, setns 308 268, mount 165 40, umount2 166 39, ptrace 101 117, process_vm_readv 310 270,
process_vm_writev 311 271, add_key 248 217, request_key 249 218, keyctl 250 219, bpf 321 280, perf_event_open 298 241,
userfaultfd 323 282, io_uring_setup 425 425, kexec_load 246 104, init_module 175 105, finit_module 313 273,
open_by_handle_at 304 265, open_tree 428 428, move_mount 429 429, fsopen 430 430, memfd_secret 447 447
"""
"""System calls by name: their number on x86_64 and on aarch64."""


class SetupError(Exception):
    """The sandbox could not be built, so the program has not run."""


def libc(name: str, *arguments: Any, needed: bool = True) -> int:
    """Call a function of the C library and return its result. If `needed`, a failure raises `SetupError`."""
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is None:
        if needed:
            raise SetupError(f"the C library of this system has no function '{name}'")
        return -1
    done = int(function(*arguments))
    if done < 0 and needed:
        number = ctypes.get_errno()
        raise SetupError(f"the system function '{name}' failed: {os.strerror(number)}")
    return done


def forbid(office: bool) -> None:
    """Forbid new privileges and the filtered system calls, for this process and every child."""
    libc("prctl", _PR_NO_NEW_PRIVS, 1, 0, 0, 0, needed=False)
    if platform.machine() in _ARCHES and sys.platform == "linux":
        program = filter_program(platform.machine(), office)
        code = ctypes.create_string_buffer(program, len(program))
        header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
        libc("prctl", _PR_SET_SECCOMP, 2, header, 0, 0)


def filter_program(machine: str, unix_sockets: bool) -> bytes:
    """The filter of system calls, as classic BPF. A system call of an architecture other than `machine` ends the
    program; the calls in `_NUMBERS` fail; `clone` works, but cannot make a user namespace.

    `unix_sockets` allows Unix sockets, through which an office program connects to itself. Inside the sandbox, these
    sockets cannot reach any other program.
    """
    fail, nosys, allow = 0x00050000 | 1, 0x00050000 | 38, 0x7FFF0000
    load, equal, at_least, any_bit, give = 0x20, 0x15, 0x35, 0x45, 0x06
    numbers = _numbers(machine)
    clone, socket = numbers.pop("clone"), numbers.pop("socket")
    code = [
        (load, 0, 0, 4),
        (equal, 1, 0, _ARCHES[machine]),
        (give, 0, 0, 0x80000000),  # kill
        (load, 0, 0, 0),
        (at_least, 0, 1, 0x40000000),  # the x32 calls of x86_64
        (give, 0, 0, fail),
        (equal, 0, 1, _CLONE3),  # a filter cannot read its flags; the C library then uses clone
        (give, 0, 0, nosys),
    ]
    for number in sorted(numbers.values()):
        code += [(equal, 0, 1, number), (give, 0, 0, fail)]
    family = 1 if unix_sockets else 0xFFFF
    code += [(equal, 0, 4, socket), (load, 0, 0, 16), (equal, 0, 1, family), (give, 0, 0, allow), (give, 0, 0, fail)]
    code += [(equal, 0, 3, clone), (load, 0, 0, 16), (any_bit, 0, 1, _NEWUSER), (give, 0, 0, fail), (give, 0, 0, allow)]
    return b"".join(struct.pack("HBBI", *line) for line in code)


def _numbers(machine: str) -> dict[str, int]:
    rows = [row.split() for row in _NUMBERS.replace("\n", " ").split(",")]
    return {name: int(x86 if machine == "x86_64" else arm) for name, x86, arm in rows}


def number_of(name: str) -> int:
    """The number of a system call on this machine; raises SetupError if there is no filter for the machine."""
    if platform.machine() not in _ARCHES:
        raise SetupError(f"there is no system call filter for {platform.machine()} processors")
    return _numbers(platform.machine())[name]
