"""The filter of system calls that every program in a sandbox runs under.

Namespaces keep the rest of the machine out of sight. The filter takes away what would reach past them (vsock and other
families of sockets, keyrings, perf, bpf), what makes new namespaces and mounts, what reads another process's memory,
and memory that no limit counts (memfd, System V shared memory and queues).
"""

from __future__ import annotations

import platform
import struct

from marl_gem.errors import SandboxUnavailable

_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""Per machine: the audit number of its architecture, and the column in the table below."""

_DENIED = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "fanotify_init": (300, 262),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
}
"""System calls that fail with EPERM, by their numbers on x86-64 and arm64."""

_CLONE, _CLONE3, _SOCKET = (56, 220), (435, 435), (41, 198)
_NEW_NAMESPACES = 0x7E020000
_SOCKET_FAMILIES = (1, 2, 10)
"""AF_UNIX, AF_INET and AF_INET6: these are bound to the namespaces. AF_VSOCK, for one, is not."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_X32 = 0x40000000
"""Numbers from here on are those of the x32 interface: the same calls once more."""


def filter_program(machine: str | None = None) -> bytes:
    """The filter as a program of classic BPF, as `bwrap --seccomp` takes it.

    Args:
        machine: "x86_64" or "aarch64"; None is this machine.

    Raises:
        SandboxUnavailable: the numbers of this machine's system calls are not known here.
    """
    machine = machine or platform.machine()
    if machine not in _MACHINES:
        raise SandboxUnavailable(
            f"there is no filter of system calls for {machine!r} machines (only for {', '.join(_MACHINES)}), so the "
            'sandbox refuses to run. Sandbox(backend="unsafe") runs programs with your rights, without a sandbox'
        )
    architecture, column = _MACHINES[machine]
    program = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    program += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _FAIL | _EPERM)]
    for numbers in _DENIED.values():
        program += [(_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, _FAIL | _EPERM)]
    # The arguments of clone3 lie in memory, where a filter cannot see them; the C library then falls back to clone.
    program += [(_EQUAL, 0, 1, _CLONE3[column]), (_RETURN, 0, 0, _FAIL | _ENOSYS)]
    program += [(_EQUAL, 0, 4, _CLONE[column]), (_LOAD, 0, 0, 16), (_ANY_BIT, 0, 1, _NEW_NAMESPACES)]
    program += [(_RETURN, 0, 0, _FAIL | _EPERM), (_RETURN, 0, 0, _ALLOW)]
    families = len(_SOCKET_FAMILIES)
    program += [(_EQUAL, 0, families + 2, _SOCKET[column]), (_LOAD, 0, 0, 16)]
    program += [(_EQUAL, families - index, 0, family) for index, family in enumerate(_SOCKET_FAMILIES)]
    program += [(_RETURN, 0, 0, _FAIL | _EAFNOSUPPORT), (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
