"""The sandbox's supervisor: a separate script that needs nothing but the standard library.

It builds a small root of read-only folders and one writable tmpfs, starts the program there as process 2 of new user,
network, mount, process and IPC namespaces, watches time and memory, and copies out the files that are wanted. The
program has no capability and no way to a socket. What goes wrong before the program starts ends with `SETUP_FAILED`.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import select
import shutil
import signal
import stat
import struct
import sys
import time
from collections.abc import Iterator
from typing import Any

SETUP_FAILED = 99
NOBODY = 65534
WORK = "/sandbox"

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_MS_REC, _MS_BIND, _MS_PRIVATE, _DETACH = 0x4000, 0x1000, 1 << 18, 2
_NOSUID, _NODEV = 2, 4
_AT_RECURSIVE, _READ_ONLY_ATTR = 0x8000, 1 | 2 | 4
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SUBREAPER, _PR_NO_NEW_PRIVS = 1, 22, 36, 38
_MOUNT_SETATTR, _CLONE3 = 442, 435

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
    """The jail could not be built; nothing of the program has run."""


def main() -> None:
    spec = json.loads(sys.argv[1])
    folder = os.open(spec["folder"], os.O_RDONLY | os.O_DIRECTORY)
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY) if os.path.isdir("/proc/self") else -1
    try:
        if spec["mode"] == "namespaces":
            work = build(spec, folder)
            spec["limits"]["processes"] += 2 if os.getuid() else 0  # the supervisor and process 1 count as well
            leader = start_init(spec)
        else:
            work = os.open("in", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
            if os.getuid() == 0:
                os.chown("in", NOBODY, NOBODY, dir_fd=folder)
            spec["limits"]["processes"] += threads_of_user(proc)  # the kernel counts them all
            libc("prctl", _PR_SUBREAPER, 1, 0, 0, 0, needed=False)
            leader = start_program(spec, os.path.join(spec["folder"], "in"))
    except (SetupError, OSError) as error:
        print(f"sandbox: {error}", file=sys.stderr)
        sys.exit(SETUP_FAILED)
    ended, status = supervise(leader, spec["limits"], proc)
    if spec["mode"] != "namespaces":
        kill_rest(proc)
    kept = [name for name in spec["wanted"] if copy_out(work, folder, name, spec["limits"]["file_mb"] << 20)]
    result = {"ended": ended, "status": status, "files": kept}
    with open(os.open("result.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder), "w") as file:
        json.dump(result, file)


# Building the jail


def libc(name: str, *arguments: Any, needed: bool = True) -> int:
    """A call of the C library; its error number becomes a `SetupError`."""
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is None:
        if needed:
            raise SetupError(f"{name} is not known on this system")
        return -1
    done = int(function(*arguments))
    if done < 0 and needed:
        number = ctypes.get_errno()
        raise SetupError(f"{name} failed: {os.strerror(number)}")
    return done


def build(spec: dict[str, Any], folder: int) -> int:
    """New namespaces and a new root; gives the writable folder, which the program will see as WORK."""
    if platform.machine() not in _ARCHES:
        raise SetupError(f"no system call filter for {platform.machine()}")
    enter_namespaces()
    root = os.path.join(spec["folder"], "root")
    os.mkdir(root)
    libc("mount", b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    _tmpfs(root, "size=1m,mode=0755")
    for path in spec["read_only"]:
        _show(path, root)
    for name in ("null", "zero", "random", "urandom"):
        _bind_file(f"/dev/{name}", f"{root}/dev/{name}")
    work = root + WORK
    os.mkdir(work)
    _tmpfs(work, f"size={spec['limits']['disk_mb']}m,nr_inodes=4096,mode=0700")
    os.makedirs(f"{root}/var", exist_ok=True)
    for place in ("/tmp", "/var/tmp"):
        if not os.path.lexists(f"{root}{place}"):  # this Python may lie below one; programs then look at the other
            os.symlink(f"{WORK}/tmp", f"{root}{place}")
    inside = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
    _copy_in(os.path.join(spec["folder"], "in"), work)
    os.chdir(root)
    return inside


def move_in(spec: dict[str, Any]) -> None:
    """Make the new root, which is the current folder, the only one. Its /proc shows only the processes of the jail."""
    if spec["office"]:
        os.mkdir("proc")
        libc("mount", b"proc", b"proc", b"proc", _NOSUID | _NODEV, None)
    libc("syscall", _number("pivot_root"), b".", b".")
    libc("umount2", b".", _DETACH)
    os.chdir("/")
    _set_read_only("/", recursive=False)


def enter_namespaces() -> None:
    """A user namespace in which we are ourselves (and, for root, nobody), and all the others below it."""
    uid, gid = os.getuid(), os.getgid()
    uids = f"{uid} {uid} 1\n" + f"{NOBODY} {NOBODY} 1\n" * (uid == 0)
    gids = f"{gid} {gid} 1\n" + f"{NOBODY} {NOBODY} 1\n" * (uid == 0)
    ready, go = os.pipe()
    me = os.getpid()
    helper = os.fork()
    if helper == 0:  # only a process outside of the new user namespace may map more than one id into it
        try:
            os.close(go)
            os.read(ready, 1)
            maps = {"setgroups": "deny\n" if uid else "", "uid_map": uids, "gid_map": gids}
            for name, text in maps.items():
                if text:
                    with open(f"/proc/{me}/{name}", "w") as file:
                        file.write(text)
            os._exit(0)
        except OSError:
            os._exit(1)
    os.close(ready)
    try:
        libc("unshare", _NEWUSER | _NEWNS | _NEWPID | _NEWNET | _NEWIPC | _NEWUTS)
    finally:
        os.close(go)
        _, status = os.waitpid(helper, 0)
    if status:
        raise SetupError("ids could not be mapped into the new user namespace")


def _tmpfs(path: str, options: str) -> None:
    libc("mount", b"tmpfs", path.encode(), b"tmpfs", _NOSUID | _NODEV, options.encode())


def _show(path: str, root: str) -> None:
    """A folder or file of the machine in the new root, read-only; a link stays a link."""
    if os.path.lexists(root + path) or not os.path.lexists(path):
        return
    os.makedirs(os.path.dirname(root + path), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), root + path)
    elif os.path.isdir(path):
        os.mkdir(root + path)
        libc("mount", path.encode(), (root + path).encode(), None, _MS_BIND | _MS_REC, None)
        _set_read_only(root + path, recursive=True)
    else:
        _bind_file(path, root + path)
        _set_read_only(root + path, recursive=False)


def _bind_file(source: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT, 0o600))
    libc("mount", source.encode(), target.encode(), None, _MS_BIND, None)


def _set_read_only(path: str, *, recursive: bool) -> None:
    attributes = struct.pack("QQQQ", _READ_ONLY_ATTR, 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    libc("syscall", _MOUNT_SETATTR, -100, path.encode(), flags, attributes, len(attributes))


def _copy_in(source: str, work: str) -> None:
    shutil.copytree(source, work, dirs_exist_ok=True)
    os.makedirs(f"{work}/tmp", exist_ok=True)
    if os.getuid() == 0:
        for folder, _, files in os.walk(work):
            for path in [folder, *(os.path.join(folder, name) for name in files)]:
                os.chown(path, NOBODY, NOBODY)


# Starting the program


def start_init(spec: dict[str, Any]) -> int:
    """Process 1 of the jail: starts the program and reaps ended processes; when it ends, the kernel ends all others."""
    pid = os.fork()
    if pid:
        return pid
    try:
        libc("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        move_in(spec)
        program = start_program(spec, WORK)
        while True:
            dead, status = os.wait()
            if dead == program:
                os._exit(_exit_code(status))
    except BaseException as error:
        os.write(2, f"sandbox: {error}\n".encode())
        os._exit(SETUP_FAILED)


def start_program(spec: dict[str, Any], work: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        os.chdir(work)
        silence = os.open("/dev/null", os.O_RDONLY)
        os.dup2(silence, 0)
        _limit(spec["limits"])
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        _forbid(spec["office"])
        os.execve(spec["argv"][0], spec["argv"], spec["environment"])  # noqa: S606
    except BaseException as error:
        os.write(2, f"sandbox: {error}\n".encode())
        os._exit(SETUP_FAILED)


def _limit(limits: dict[str, int]) -> None:
    megabyte = 1 << 20
    wanted = {
        "RLIMIT_AS": limits["memory_mb"] * megabyte,
        "RLIMIT_CPU": limits["cpu_seconds"],
        "RLIMIT_FSIZE": limits["file_mb"] * megabyte,
        "RLIMIT_NOFILE": 128,
        "RLIMIT_NPROC": limits["processes"],
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 0,
    }
    for name, most in wanted.items():
        kind = getattr(resource, name, None)
        if kind is not None:
            ceiling = resource.getrlimit(kind)[1]
            hard = most + (name == "RLIMIT_CPU")  # at the first number the kernel says why, at the second it kills
            hard = hard if ceiling == resource.RLIM_INFINITY else min(hard, ceiling)
            resource.setrlimit(kind, (min(most, hard), hard))


def _forbid(office: bool) -> None:
    """No new privileges, and a filter of system calls, which every child inherits."""
    libc("prctl", _PR_NO_NEW_PRIVS, 1, 0, 0, 0, needed=False)
    if platform.machine() in _ARCHES and sys.platform == "linux":
        program = filter_program(platform.machine(), office)
        code = ctypes.create_string_buffer(program, len(program))
        header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
        libc("prctl", _PR_SET_SECCOMP, 2, header, 0, 0)


def filter_program(machine: str, unix_sockets: bool) -> bytes:
    """Classic BPF: another architecture's calls and the listed ones fail, clone may not make a user namespace.

    An office program speaks to itself through Unix sockets; in the jail they lead nowhere else.
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
        (equal, 0, 1, _CLONE3),  # its flags are out of a filter's reach; the C library then takes clone
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


def _number(name: str) -> int:
    return _numbers(platform.machine())[name]


# Watching it


def supervise(leader: int, limits: dict[str, int], proc: int) -> tuple[str, int]:
    """Wait for the end; gives why it ended (`exit`, `time`, `memory`, `parent`) and the exit code."""
    deadline = time.monotonic() + limits["seconds"]
    pause = 0.005
    while True:
        dead, status = os.waitpid(leader, os.WNOHANG)
        if dead:
            return "exit", _exit_code(status)
        ended = ""
        if time.monotonic() > deadline:
            ended = "time"
        elif resident(leader, proc) > limits["memory_mb"] << 20:
            ended = "memory"
        elif select.select([0], [], [], pause)[0] and not os.read(0, 1):
            ended = "parent"
        if ended:
            os.kill(leader, signal.SIGKILL)
            _, status = os.waitpid(leader, 0)
            return ended, _exit_code(status)
        pause = min(pause * 1.5, 0.05)


def descendants(pid: int, proc: int) -> Iterator[int]:
    """A process and all its descendants, as far as /proc shows them."""
    yield pid
    try:
        tasks = _names(proc, f"{pid}/task")
    except OSError:
        return
    for task in tasks:
        for child in _read(proc, f"{pid}/task/{task}/children").split():
            yield from descendants(int(child), proc)


def resident(pid: int, proc: int) -> int:
    """Bytes of memory that a process and all below it hold."""
    pages = 0
    for each in descendants(pid, proc) if proc >= 0 else ():
        numbers = _read(proc, f"{each}/statm").split()
        pages += int(numbers[1]) if numbers else 0
    return pages * resource.getpagesize()


def threads_of_user(proc: int) -> int:
    """Threads of the user that the program will run as."""
    user = os.getuid() or NOBODY
    count = 0
    for name in _names(proc, ".") if proc >= 0 else ():
        try:
            if name.isdecimal() and os.stat(name, dir_fd=proc).st_uid == user:
                count += len(_names(proc, f"{name}/task"))
        except OSError:
            continue
    return count


def _names(proc: int, path: str) -> list[str]:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY, dir_fd=proc)
    try:
        return os.listdir(folder)
    finally:
        os.close(folder)


def _read(proc: int, path: str) -> str:
    try:
        file = os.open(path, os.O_RDONLY, dir_fd=proc)
    except OSError:
        return ""
    try:
        return os.read(file, 1 << 16).decode()
    except OSError:
        return ""
    finally:
        os.close(file)


def kill_rest(proc: int) -> None:
    """Without a process namespace: everything that the program left behind, which is now below us."""
    for _ in range(100):
        rest = [pid for pid in descendants(os.getpid(), proc) if pid != os.getpid()] if proc >= 0 else []
        for pid in rest:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def copy_out(work: int, folder: int, name: str, most: int) -> bool:
    """Only a plain file: the program may have put a link or a pipe there."""
    try:
        source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=work)
    except OSError:
        return False
    try:
        found = os.fstat(source)
        if not stat.S_ISREG(found.st_mode) or found.st_size > most:
            return False
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(os.open(f"out/{name}", flags, 0o600, dir_fd=folder), "wb") as target:
            while chunk := os.read(source, 1 << 20):
                target.write(chunk)
        return True
    finally:
        os.close(source)


if __name__ == "__main__":
    main()
