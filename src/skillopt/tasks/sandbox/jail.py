"""The sandbox's supervisor: a script that needs only the standard library, calls.py and trees.py.

It builds a small root of read-only folders and one writable tmpfs, and starts the program there as process 2 of new
user, network, mount, process and IPC namespaces. It watches time and memory, and copies the folder `keep` out of the
sandbox. The program has no capabilities and no network. If the program cannot be started, the exit code is
`SETUP_FAILED`.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import struct
import sys
import time
from collections.abc import Iterator
from typing import TypedDict

try:
    from skillopt.tasks.sandbox.calls import SetupError, forbid, libc, number_of
    from skillopt.tasks.sandbox.trees import copy_in, copy_tree_out
except ImportError:  # as a script, without the package
    from calls import SetupError, forbid, libc, number_of  # type: ignore[import-not-found, no-redef]
    from trees import copy_in, copy_tree_out  # type: ignore[import-not-found, no-redef]

SETUP_FAILED = 99
NOBODY = 65534
WORK = "/sandbox"


class Spec(TypedDict):
    """A request to the supervisor."""

    folder: str
    mode: str
    office: bool
    argv: list[str]
    environment: dict[str, str]
    trees: dict[str, str]
    keep: str
    links: dict[str, str]
    read_only: list[str]
    limits: dict[str, int]


_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_MS_REC, _MS_BIND, _MS_PRIVATE, _DETACH = 0x4000, 0x1000, 1 << 18, 2
_NOSUID, _NODEV = 2, 4
_AT_RECURSIVE, _READ_ONLY_ATTR = 0x8000, 1 | 2 | 4
_PR_SET_PDEATHSIG, _PR_SUBREAPER = 1, 36
_MOUNT_SETATTR = 442


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        spec: Spec = json.load(file)
    folder = os.open(spec["folder"], os.O_RDONLY | os.O_DIRECTORY)
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY) if os.path.isdir("/proc/self") else -1
    try:
        if spec["mode"] == "namespaces":
            work = build(spec, folder)
            spec["limits"]["processes"] += 2 if os.getuid() else 0  # the supervisor and process 1 count as well
            leader = start_init(spec)
        else:
            work = os.open("in", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
            copy_in(os.path.join(spec["folder"], "in"), spec["trees"], NOBODY)
            spec["limits"]["processes"] += threads_of_user(proc)  # the kernel counts all threads of the user
            libc("prctl", _PR_SUBREAPER, 1, 0, 0, 0, needed=False)
            leader = start_program(spec, os.path.join(spec["folder"], "in"))
    except (SetupError, OSError) as error:
        print(f"sandbox: {error}", file=sys.stderr)
        sys.exit(SETUP_FAILED)
    ended, status = supervise(leader, spec["limits"], proc)
    if spec["mode"] != "namespaces":
        kill_rest(proc)
    whole = copy_tree_out(work, folder, spec["keep"], spec["limits"]["disk_mb"] << 20) if spec["keep"] else True
    result = {"ended": ended, "status": status, "whole": whole}
    with open(os.open("result.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder), "w") as file:
        json.dump(result, file)


# Building the jail


def build(spec: Spec, folder: int) -> int:
    """Make new namespaces and a new root; returns the writable folder, which the program will see as WORK."""
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
    for path in ("/tmp", "/var/tmp"):
        if not os.path.lexists(f"{root}{path}"):  # this Python may be below one of the two; programs then use the other
            os.symlink(f"{WORK}/tmp", f"{root}{path}")
    for path, name in spec["links"].items():
        if not os.path.lexists(f"{root}{path}"):
            os.makedirs(os.path.dirname(f"{root}{path}"), exist_ok=True)
            os.symlink(f"{WORK}/{name}", f"{root}{path}")
    inside = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
    copy_in(work, spec["trees"], NOBODY)
    os.chdir(root)
    return inside


def move_in(spec: Spec) -> None:
    """Make the current folder, which is the new root, the only root. An office program also gets a
    /proc that shows only the sandbox."""
    if spec["office"]:
        os.mkdir("proc")
        libc("mount", b"proc", b"proc", b"proc", _NOSUID | _NODEV, None)
    libc("syscall", number_of("pivot_root"), b".", b".")
    libc("umount2", b".", _DETACH)
    os.chdir("/")
    _set_read_only("/", recursive=False)


def enter_namespaces() -> None:
    """Enter new namespaces. The user keeps its id in them. If the user is root, the user `nobody` exists in them,
    too."""
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
        raise SetupError("the ids of user and group could not be mapped into the new user namespace")


def _tmpfs(path: str, options: str) -> None:
    libc("mount", b"tmpfs", path.encode(), b"tmpfs", _NOSUID | _NODEV, options.encode())


def _show(path: str, root: str) -> None:
    """Make a folder or file of the machine visible in the new root, read-only; a link stays a link."""
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


# Starting the program


def start_init(spec: Spec) -> int:
    """Start process 1 of the sandbox, which starts the program and reaps processes. When process 1 ends, the kernel
    ends all other processes of the sandbox."""
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


def start_program(spec: Spec, work: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        os.chdir(os.path.join(work, "workspace"))
        silence = os.open("/dev/null", os.O_RDONLY)
        os.dup2(silence, 0)
        _limit(spec["limits"])
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        forbid(spec["office"])
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
            hard = most + (name == "RLIMIT_CPU")  # soft limit: a signal with a reason; hard limit: a kill
            hard = hard if ceiling == resource.RLIM_INFINITY else min(hard, ceiling)
            resource.setrlimit(kind, (min(most, hard), hard))


# Watching the program


def supervise(leader: int, limits: dict[str, int], proc: int) -> tuple[str, int]:
    """Wait until the program has ended; returns why it ended (`exit`, `time`, `memory`, `parent`) and the exit code."""
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
    """The ids of a process and all its descendants, as far as /proc shows them."""
    yield pid
    try:
        tasks = _names(proc, f"{pid}/task")
    except OSError:
        return
    for task in tasks:
        for child in _read(proc, f"{pid}/task/{task}/children").split():
            yield from descendants(int(child), proc)


def resident(pid: int, proc: int) -> int:
    """The bytes of memory that a process and its descendants use."""
    pages = 0
    for each in descendants(pid, proc) if proc >= 0 else ():
        numbers = _read(proc, f"{each}/statm").split()
        pages += int(numbers[1]) if numbers else 0
    return pages * resource.getpagesize()


def threads_of_user(proc: int) -> int:
    """The number of threads of the user that the program will run as."""
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
    """End all processes of the program that still run; they are now children of this process. Used only without
    namespaces."""
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


if __name__ == "__main__":
    main()
