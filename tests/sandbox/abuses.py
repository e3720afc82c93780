"""Escapes and abuses that a sandbox must withstand: what is run, and how it is to end.

`ESCAPES` reach for what they must not have; they run as snippets of one session, each by itself. `ABUSES` take more
than they may; each runs in a fresh sandbox. `held(action)` prints "held" if the action fails and "ESCAPED" if it
succeeds. Words in capital letters and at-signs, such as @PORT@, stand for what `guarded` made outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

PRELUDE = """
import os, sys, time
def held(action, *arguments, **options):
    try:
        result = action(*arguments, **options)
    except Exception as error:
        print("held", type(error).__name__, flush=True)
    else:
        print("ESCAPED", result, flush=True)
def read(path, mode="rb"):
    with open(path, mode) as file:
        return file.read(100)
def write(path, data=b"x"):
    with open(path, "wb") as file:
        file.write(data)
def fork():
    pid = os.fork()
    if pid == 0:
        time.sleep(100)
        os._exit(0)
    return pid
"""

ESCAPE_PRELUDE = (
    PRELUDE
    + """
import ctypes, glob, resource, signal, socket, subprocess
libc = ctypes.CDLL(None, use_errno=True)
X86 = os.uname().machine == "x86_64"
def system_call(number, *arguments):
    if libc.syscall(number, *arguments) == -1:
        raise OSError(ctypes.get_errno(), "system call")
"""
)


class Abuse(NamedTuple):
    """A program, how it is to end, and what of its limits differs."""

    code: str
    ended: tuple[str, ...] = ("exit",)
    limits: Mapping[str, float] = MappingProxyType({})
    stdin: int = 0


ESCAPES = {
    "a connection to a server of the host": ("held(socket.create_connection, ('127.0.0.1', @PORT@), 1)"),
    "a connection to the outside": ("held(socket.create_connection, ('1.1.1.1', 53), 1)"),
    "a datagram to the outside": (
        "held(socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto, b'x', ('1.1.1.1', 53))"
    ),
    "an abstract socket of the host": ("held(socket.socket(socket.AF_UNIX).connect, '\\0@NAME@')"),
    "sockets that know no namespace": (
        "for family in (40, 16, 17, 38, 31): held(socket.socket, family, socket.SOCK_DGRAM)"
    ),
    "processes of the host": (
        """
seen = [int(name) for name in os.listdir("/proc") if name.isdigit()]
held(lambda: [][0 if len(seen) <= 3 and max(seen) < 50 else None:] or [][0] if len(seen) <= 3 else seen)
held(lambda: 1 / 0 if b"sleep" not in read("/proc/@VICTIM@/cmdline") else "seen")
"""
    ),
    "a signal to a process of the host": ("held(os.kill, @VICTIM@, signal.SIGKILL)"),
    "signals to the first process": (
        """
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGSTOP, signal.SIGHUP, signal.SIGCHLD, signal.SIGKILL):
    for pid in (1, os.getppid()):
        try: os.kill(pid, number)
        except OSError: pass
time.sleep(0.2)
print("held")
"""
    ),
    "secrets in environments": (
        """
texts = [str(os.environ).encode()]
for path in glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline"):
    try: texts.append(open(path, "rb").read())
    except OSError: pass
held(lambda: 1 / (b"@SECRET@" in b"".join(texts)))
"""
    ),
    "a file of the user's": ("held(read, '@FOLDER@/canary')"),
    "keys in home folders": (
        """
for path in ("@HOME@/.ssh", "/root/.ssh", "/home", "@HOME@/.config", "@HOME@/.aws", "/etc/shadow", "/var", "/run"):
    held(os.stat, path)
"""
    ),
    "writing outside": (
        """
library = os.__file__
for path in ("/x", "/usr/x", "/etc/x", "/dev/x", "/bin/x", "/proc/x", sys.base_prefix + "/x", library, "@FOLDER@/x"):
    held(write, path)
held(os.mkdir, "/new")
held(os.remove, os.__file__)
held(os.chmod, "/usr/bin/env", 0o777)
"""
    ),
    "symbolic links and roots": (
        """
os.symlink("@FOLDER@/canary", "/tmp/link")
held(read, "/tmp/link")
os.symlink("/usr/x", "/tmp/other")
held(write, "/tmp/other")
held(read, "/proc/1/root@FOLDER@/canary")
held(read, "/proc/self/root@FOLDER@/canary")
held(read, "/proc/self/cwd/../../../../../../@FOLDER@/canary")
held(os.chroot, "/tmp")
"""
    ),
    "the kernel's settings": (
        """
names = "kernel/core_pattern", "kernel/modprobe", "vm/overcommit_memory", "user/max_user_namespaces", "fs/suid_dumpable"
for name in names:
    held(write, "/proc/sys/" + name, b"1")
held(write, "/proc/sysrq-trigger", b"b")
held(os.listdir, "/sys")
"""
    ),
    "memory of the first process": (
        """
for name in ("mem", "environ", "maps", "fd/0", "root", "cwd"):
    held(read, "/proc/1/" + name)
held(read, "/proc/1/mem", "r+b")
held(os.listdir, "/proc/1/fd")
"""
    ),
    "ptrace": (
        """
held(system_call, 101 if X86 else 117, 16, 1, 0, 0)
held(system_call, 101 if X86 else 117, 16, fork(), 0, 0)
held(system_call, 310 if X86 else 270, 1, 0, 0, 0, 0, 0)
"""
    ),
    "mounts": (
        """
held(system_call, 165 if X86 else 40, b"none", b"/tmp", b"tmpfs", 0, None)
held(system_call, 165 if X86 else 40, b"none", b"/usr", None, 32 | 4096, None)
held(system_call, 166 if X86 else 39, b"/proc/sys", 2)
held(system_call, 430, b"tmpfs", 0)
held(subprocess.check_call, ["mount", "-t", "tmpfs", "none", "/tmp"], stderr=subprocess.DEVNULL)
"""
    ),
    "namespaces inside": (
        """
for flag in (0x10000000, 0x20000, 0x40000000, 0x20000000):
    held(system_call, 272 if X86 else 97, flag)
    held(system_call, 56 if X86 else 220, flag | signal.SIGCHLD, None, None, None, None)
held(system_call, 435, bytes(88), 88)
held(lambda: system_call(308 if X86 else 268, os.open("/proc/self/ns/net", os.O_RDONLY), 0))
held(subprocess.check_call, ["unshare", "-Ur", "true"], stderr=subprocess.DEVNULL)
"""
    ),
    "rights": (
        """
status = open("/proc/self/status").read()
for name in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
    held(lambda: 1 / (f"{name}:\\t0000000000000000" not in status))
held(lambda: 1 / ("NoNewPrivs:\\t1" not in status))
held(lambda: 1 / (0 in os.getresuid()))
held(os.setuid, 0)
held(os.setgroups, [0])
held(subprocess.check_call, ["su", "-c", "true"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
held(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))
held(write, "/proc/self/oom_score_adj", b"-1000")
"""
    ),
    "higher limits": (
        """
for name in ("AS", "NPROC", "FSIZE", "NOFILE", "CORE"):
    kind = getattr(resource, "RLIMIT_" + name)
    hard = resource.getrlimit(kind)[1]
    held(resource.setrlimit, kind, (hard + 1, hard + 1))
    held(resource.setrlimit, kind, (-1, -1))
"""
    ),
    "devices": (
        """
for name in ("mem", "kmem", "sda", "vda", "kvm", "fuse", "tty", "console", "vsock", "ptmx", "net/tun", "kmsg"):
    held(os.open, "/dev/" + name, os.O_RDWR)
held(os.mknod, "/tmp/disk", 0o60666, os.makedev(8, 0))
"""
    ),
    "other system calls": (
        """
held(system_call, 250 if X86 else 219, 0, -3, 1)
held(system_call, 425, 8, bytes(120))
held(system_call, 321 if X86 else 280, 0, bytes(64), 64)
held(system_call, 298 if X86 else 241, bytes(112), 0, -1, -1, 0)
held(system_call, 323 if X86 else 282, 0)
held(system_call, 169 if X86 else 142, 0xfee1dead, 672274793, 0)
"""
    ),
    "memory without a process": (
        """
held(os.memfd_create, "x")
held(system_call, 29 if X86 else 194, 0, 1 << 20, 0o1666)
held(system_call, 68 if X86 else 186, 0, 0o1666)
held(system_call, 64 if X86 else 190, 0, 100, 0o1666)
held(system_call, 240 if X86 else 180, b"x", 0o102, 0o666, None)
"""
    ),
}

ABUSES = {
    "kill -1": Abuse(
        "import signal\nos.fork() or time.sleep(100)\nos.kill(-1, signal.SIGKILL)\nprint('held')", ("exit", "killed")
    ),
    "files that the parent has open": Abuse(
        """
import glob
files = [os.readlink(path) for path in glob.glob("/proc/self/fd/*") if os.path.lexists(path)]
held(lambda: 1 / any("canary" in name or "socket" in name for name in files))
held(lambda: 1 / (len(files) > 4))
for number in range(3, 300):
    try: os.write(number, b"x" * 100)
    except OSError: continue
    print("ESCAPED", number)
"""
    ),
    "forged replies": Abuse(
        """
reply = (4).to_bytes(4, "little") + bytes(4) + bytes(4) + b"\\0\\0" + b"fine"
for number in [*range(3, 1024)]:
    try: os.write(number, reply)
    except OSError: pass
sys.stdout.buffer.write(reply)
sys.stdout.flush()
print("held")
os._exit(9)
"""
    ),
    "a fork bomb": Abuse(
        """
def bomb():
    while True:
        try: os.fork()
        except OSError: pass
bomb()
""",
        ("timeout", "memory"),
        {"wall": 0.5},
    ),
    "a fork bomb that reports": Abuse(
        """
made = 0
try:
    while made < 60:
        fork()
        made += 1
except OSError: pass
print("held" if made <= 24 else "ESCAPED", made)
"""
    ),
    "a fork bomb of a shell": Abuse(
        "os.execvp('bash', ['bash', '-c', 'b() { b | b & }; b; sleep 100'])", ("timeout", "memory"), {"wall": 0.5}
    ),
    "threads": Abuse(
        """
import threading
made = 0
try:
    while made < 100:
        threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
        made += 1
except RuntimeError: pass
print("held" if made <= 24 else "ESCAPED", made, flush=True)
os._exit(0)
"""
    ),
    "children that nobody waits for": Abuse(
        """
made = 0
for _ in range(300):
    try:
        if os.fork() == 0:
            os._exit(0)
        made += 1
    except OSError: break
print("held" if made <= 24 else "ESCAPED", made)
"""
    ),
    "orphans": Abuse(
        """
for _ in range(100):
    while True:
        try: pid = os.fork()
        except OSError: time.sleep(0.01)
        else: break
    if pid == 0:
        try: os.fork()
        except OSError: pass
        os._exit(0)
    os.waitpid(pid, 0)
print("held")
""",
        limits={"wall": 20},
    ),
    "a daemon that outlives": Abuse(
        """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(3): os.close(number)
        while True: time.sleep(1)
    os._exit(0)
print("held")
"""
    ),
    "a daemon that keeps the output open": Abuse(
        "if os.fork() == 0:\n    os.setsid()\n    time.sleep(100)\nprint('held', flush=True)\nos._exit(0)"
    ),
    "memory at once": Abuse("held(bytearray, 1 << 30)"),
    "memory, bit by bit": Abuse("held(lambda: [bytearray(1 << 20) for _ in range(1000)])"),
    "memory of many processes": Abuse(
        """
for _ in range(12):
    if os.fork() == 0:
        data = bytearray(60 << 20)
        for index in range(0, len(data), 4096): data[index] = 1
        time.sleep(100)
time.sleep(100)
""",
        ("memory",),
        {"wall": 20},
    ),
    "memory that is shared": Abuse(
        """
import mmap
for _ in range(12):
    if os.fork() == 0:
        area = mmap.mmap(-1, 60 << 20)
        for index in range(0, len(area), 4096): area[index] = 1
        time.sleep(100)
time.sleep(100)
""",
        ("memory",),
        {"wall": 20},
    ),
    "the disk": Abuse(
        """
def fill():
    for index in range(64):
        write(f"/tmp/{index}", bytes(1 << 20))
held(fill)
"""
    ),
    "a large file": Abuse(
        "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nheld(write, '/tmp/x', bytes(64 << 20))"
    ),
    "shared memory files": Abuse("held(write, '/dev/shm/x', bytes(60 << 20))"),
    "countless empty files": Abuse(
        """
for index in range(10_000_000):
    os.close(os.open(f"/tmp/{index}", os.O_CREAT | os.O_WRONLY))
""",
        ("memory",),
        {"wall": 20},
    ),
    "an output flood": Abuse("while True: os.write(1, b'x' * 65536)", ("output",)),
    "a flood of errors": Abuse("while True: os.write(2, b'x' * 65536)", ("output",)),
    "a flood of many processes": Abuse(
        "for _ in range(3): os.fork()\nwhile True: os.write(1, b'x' * 65536)", ("output",)
    ),
    "bytes that are no text": Abuse(
        "sys.stdout.buffer.write(bytes(range(256)) * 10)\nsys.stdout.flush()\nprint('held')"
    ),
    "an endless loop": Abuse(
        """
import signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: pass
""",
        ("timeout",),
        {"wall": 0.5},
    ),
    "an endless wait without output": Abuse(
        "for number in range(3): os.close(number)\ntime.sleep(1000)", ("timeout",), {"wall": 0.5}
    ),
    "more CPU time than allowed": Abuse(
        "if os.fork() == 0:\n    while True: pass\nwhile True: pass", ("timeout",), {"wall": 60, "cpu": 0.5}
    ),
    "a process that stops itself": Abuse(
        "import signal\nos.kill(os.getpid(), signal.SIGSTOP)", ("timeout",), {"wall": 0.5}
    ),
    "an input that nobody reads": Abuse("print('held')", stdin=20_000_000),
    "an input that fills the memory": Abuse("held(sys.stdin.buffer.read)", stdin=150_000_000),
    "a crash": Abuse("import ctypes\nctypes.string_at(0)", ("killed",)),
    "deeply nested code": Abuse("held(compile, '-' * 3_000_000 + '1', 'x', 'eval')", ("exit", "killed", "memory")),
    "recursion without end": Abuse("def f(): f()\nheld(f)"),
    "an exit while threads run": Abuse(
        "import threading\nthreading.Thread(target=time.sleep, args=(100,)).start()\nprint('held', flush=True)",
        ("timeout",),
        {"wall": 0.5},
    ),
}

LIMITS: dict[str, float] = {
    "wall": 10,
    "cpu": 10,
    "memory": 100 << 20,
    "processes": 24,
    "disk": 16 << 20,
    "files": 5000,
    "output": 200_000,
}
"""What the programs may use, if their line in the table does not say otherwise."""
