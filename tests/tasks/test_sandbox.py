"""Programs that a model wrote cannot harm the machine: each hostile one is contained, and told as a failure."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillopt.errors import SkillOptError, UserError
from skillopt.tasks import sandbox
from skillopt.tasks.sandbox import Sandbox, SandboxLimits, SandboxResult
from support import until

TIGHT = SandboxLimits(cpu_seconds=2, seconds=60, memory_mb=256, file_mb=4, disk_mb=8, processes=8, output_kb=4)


def refusal(mode: sandbox.Mode) -> str:
    try:
        sandbox.require(mode)
    except UserError as error:
        return str(error)
    return ""


needs_namespaces = pytest.mark.skipif(bool(refusal("namespaces")), reason=refusal("namespaces") or "-")
needs_limits = pytest.mark.skipif(bool(refusal("limits")), reason=refusal("limits") or "-")
pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux only (docs/sandbox.md)"),
]


def run(program: str, mode: sandbox.Mode = "namespaces", limits: SandboxLimits = TIGHT, **more: Any) -> SandboxResult:
    return asyncio.run(Sandbox(limits, mode=mode).run(program, **more))


@pytest.fixture(params=[pytest.param("namespaces", marks=needs_namespaces), pytest.param("limits", marks=needs_limits)])
def mode(request: pytest.FixtureRequest) -> sandbox.Mode:
    return request.param  # type: ignore[no-any-return]


# What honest programs get


def test_a_program_reads_its_files_and_gives_back_the_wanted_ones(mode: sandbox.Mode) -> None:
    program = (
        "import sys\nopen('out.txt', 'w').write(open('in.txt').read() * 2)\nprint('done')\nprint('e', file=sys.stderr)"
    )
    done = run(program, mode, files={"in.txt": b"ab"}, wanted=["out.txt", "other.txt"])
    assert (done.ok, done.reason, done.stdout, done.stderr) == (True, "", "done\n", "e\n")
    assert done.files == {"out.txt": b"abab"}


def test_packages_and_processes_of_its_own_work(mode: sandbox.Mode) -> None:
    pytest.importorskip("openpyxl")
    program = (
        "import openpyxl, subprocess, sys, tempfile\n"
        "book = openpyxl.Workbook(); book.active['A1'] = 3; book.save('b.xlsx')\n"
        "print(subprocess.run([sys.executable, '-c', 'print(6 * 7)'], capture_output=True, text=True).stdout)\n"
        "with tempfile.TemporaryFile() as file: file.write(b'x')"
    )
    done = run(program, mode, limits=SandboxLimits(), wanted=["b.xlsx"])
    assert done.ok, done
    assert done.stdout == "42\n\n"
    assert done.files["b.xlsx"][:2] == b"PK"


@needs_namespaces
def test_the_usual_places_for_passing_files_are_the_programs_own() -> None:
    done = run("open('/var/tmp/x', 'w').write('hello'); print(open('../tmp/x').read())")
    assert (done.ok, done.stdout) == (True, "hello\n"), done


def test_a_program_that_fails_says_how(mode: sandbox.Mode) -> None:
    assert run("1 / 0", mode).reason == "exit code 1: ZeroDivisionError: division by zero"
    assert run("import os; os.abort()", mode).reason == "killed by signal 6"
    assert run("def", mode).reason.startswith("exit code 1: SyntaxError")
    assert run("raise SystemExit(99)", mode).reason == "exit code 99"


# What hostile programs get


def contained(done: SandboxResult, *signs: str) -> None:
    assert not done.ok
    assert any(sign in done.reason for sign in signs), done


def test_an_endless_loop_is_stopped_by_cpu_time(mode: sandbox.Mode) -> None:
    contained(run("while True: pass", mode), "2 s of CPU time", "60 s")


def test_a_program_that_waits_for_ever_is_stopped_by_the_clock(mode: sandbox.Mode) -> None:
    contained(run("import time; time.sleep(3600)", mode, TIGHT.model_copy(update={"seconds": 1})), "the limit of 1 s")


def test_ten_gigabytes_are_not_to_be_had(mode: sandbox.Mode) -> None:
    contained(run("x = bytearray(10 << 30)", mode), "MemoryError")


@needs_namespaces
def test_nor_in_small_pieces_by_many_processes() -> None:
    hog = (
        "import os, time\nfor _ in range(6):\n"
        "  if os.fork() == 0:\n    x = bytearray(150 << 20); time.sleep(60)\ntime.sleep(60)"
    )
    contained(run(hog), "256 MB of memory")


def test_a_fork_bomb_runs_into_the_limit_and_leaves_nothing(mode: sandbox.Mode) -> None:
    mark = f"bomb-{os.getpid()}-{mode}"
    bomb = f"import os, sys\nos.execv(sys.executable, [{mark!r}, '-c', 'import os\\nwhile True: os.fork()'])"
    contained(run(bomb, mode), "BlockingIOError", "CPU time", "the limit of 60 s", "signal")
    assert not _named(mark)


@needs_namespaces
def test_a_full_disk_is_the_programs_own(tmp_path: Path) -> None:
    free = os.statvfs(tmp_path).f_bavail
    many = "for n in range(10_000):\n  open(f'f{n}', 'wb').write(b'x' * 1_000_000)"
    contained(run(many), "No space left on device")
    elsewhere = (
        "for place in ('/', '/usr', '/etc', '/dev', '/var', '/home'):\n"
        "  try: open(place + '/f', 'wb')\n  except OSError: print('no')\n  else: print('yes')"
    )
    assert set(run(elsewhere).stdout.split()) == {"no"}
    assert free - os.statvfs(tmp_path).f_bavail < 100_000_000 // 4096


def test_one_huge_file_is_refused(mode: sandbox.Mode) -> None:
    contained(run("open('f', 'wb').write(b'x' * 100_000_000)", mode), "File too large", "wrote a file over 4 MB")
    assert run("open('f', 'wb').write(b'x' * 3_000_000)", mode, wanted=["f"]).files["f"] == b"x" * 3_000_000


def test_a_flood_of_output_is_cut_and_costs_no_memory(mode: sandbox.Mode) -> None:
    done = run("for _ in range(300_000): print('flood ' * 10)", mode, SandboxLimits(output_kb=4))
    assert done.ok
    assert len(done.stdout) == 4096


def test_the_network_is_out_of_reach(mode: sandbox.Mode) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        program = f"import socket\nsocket.create_connection(('127.0.0.1', {server.getsockname()[1]}), timeout=2)"
        contained(run(program, mode), "PermissionError", "Operation not permitted")
    for family in ("AF_UNIX", "AF_INET6", "AF_NETLINK", "AF_VSOCK", "AF_PACKET"):
        contained(run(f"import socket\nsocket.socket(socket.{family}, socket.SOCK_DGRAM)", mode), "PermissionError")


@needs_namespaces
def test_home_and_the_rest_of_the_machine_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2")
    places = [
        str(tmp_path / "secret"),
        str(Path.home() / ".bashrc"),
        "/etc/passwd",
        "/proc/1/environ",
        str(Path(__file__)),
    ]
    for place in places:
        contained(run(f"print(open({place!r}).read())"), "FileNotFoundError", "PermissionError", "NotADirectoryError")
    names = f"import os\nprint(os.listdir({str(Path.home())!r}))"
    seen = run(names)
    assert not seen.ok or set(eval(seen.stdout)) <= {".local", ".pyenv", ".cache", ".venv", "miniconda3"}, seen


def test_the_environment_holds_nothing_of_the_users(mode: sandbox.Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert "secret" not in run("import os; print(os.environ)", mode).stdout


@needs_namespaces
def test_the_parent_cannot_be_killed_or_even_seen() -> None:
    me = os.getpid()
    program = f"import os, signal\nprint(os.getppid())\nos.kill({me}, signal.SIGKILL)"
    done = run(program)
    contained(done, "ProcessLookupError")
    assert done.stdout == "1\n"
    shot = "import os, signal\ntry: os.kill(1, signal.SIGKILL)\nexcept OSError: pass\nprint('still here')"
    assert run(shot).stdout == "still here\n", "process 1 of the jail is safe"
    run("import os, signal\nos.kill(-1, signal.SIGKILL)")


def test_orphans_and_zombies_do_not_outlive_the_program(mode: sandbox.Mode) -> None:
    mark = f"orphan-{os.getpid()}-{mode}"
    sleeper = f"os.execv(sys.executable, [{mark!r}, '-c', 'import time; time.sleep(3000)'])"
    orphan = (
        "import os, sys, time\nfor n in range(5):\n"
        f"  if os.fork() == 0:\n    if n % 2: os._exit(0)\n    os.setsid(); {sleeper}\n"
        "time.sleep(0.2)"
    )
    assert run(orphan, mode).ok
    assert not _named(mark)


@needs_namespaces
def test_privileges_cannot_be_won_back() -> None:
    program = (
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "print(libc.unshare(0x10000000), libc.mount(b'x', b'/sandbox', b'tmpfs', 0, None), libc.syscall(435, 0, 0))\n"
        "print(libc.syscall(56, 0x10000011, 0, 0, 0, 0), os.getuid() != 0)\n"
        "for call in ('setuid', 'setgid'):\n  try: getattr(os, call)(0); print('won')\n  except OSError: print('no')"
    )
    if os.uname().machine == "x86_64":
        assert run(program).stdout.split() == ["-1", "-1", "-1", "-1", "True", "no", "no"]


def test_only_plain_files_come_back(mode: sandbox.Mode, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2")
    link = f"os.symlink({str(tmp_path / 'secret')!r}, 'link')"
    program = f"import os\n{link}\nos.mkfifo('pipe')\nos.mkdir('dir')\nopen('f', 'w')"
    assert run(program, mode, wanted=["link", "pipe", "dir", "f"]).files == {"f": b""}


# How it is used


@needs_namespaces
def test_many_programs_at_once_stay_apart() -> None:
    async def many() -> list[SandboxResult]:
        box = Sandbox(TIGHT)
        return await asyncio.gather(*(box.run(f"print({n})") for n in range(8)))

    assert [int(done.stdout) for done in asyncio.run(many())] == list(range(8))


def test_a_file_name_cannot_leave_the_folder(mode: sandbox.Mode) -> None:
    for name in ("../x", "/etc/x", "", "a/b"):
        with pytest.raises(ValueError, match="not the name of a file"):
            run("", mode, files={name: b""})


def test_where_programs_cannot_be_isolated_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_tried", lambda mode: "unshare failed: Operation not permitted")
    with pytest.raises(UserError, match=r"unshare failed.*sandbox: limits") as caught:
        Sandbox()
    assert isinstance(caught.value, SkillOptError)


@needs_namespaces
def test_a_killed_parent_takes_its_programs_with_it() -> None:
    script = (
        "import asyncio\nfrom skillopt.tasks.sandbox import Sandbox\n"
        "box = Sandbox()\nprint('ready', flush=True)\nasyncio.run(box.run('import time; time.sleep(50)'))"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        parent.stdout.readline()
        family = until(lambda: _jailed(parent.pid))
        parent.kill()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family))


def _named(mark: str) -> list[Path]:
    """Processes of this machine whose command line holds the mark."""

    def holds(path: Path) -> bool:
        try:
            return mark.encode() in path.read_bytes()
        except OSError:
            return False

    return [path for path in Path("/proc").glob("[0-9]*/cmdline") if holds(path)]


def _below(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            children = [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue
        for child in children:
            yield child
            yield from _below(child)


def _jailed(pid: int) -> list[int]:
    found = list(_below(pid))
    return found if len(found) >= 3 else []
