"""Tries to reach what a command must not reach, and says what it reached.

The one argument is a JSON object of targets. Without a sandbox all of it can be
reached: that is how the test knows that this finds what there is.
"""
import ctypes, json, os, resource, socket, sys

want = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)


def attempt(name, f):
    try:
        if f():
            print("REACHED", name)
    except Exception as e:
        print("kept", name, type(e).__name__, e)


def contains(path, needle):
    with open(path, "rb") as f:
        return needle.encode() in f.read()


def connect(family, kind, address):
    s = socket.socket(family, kind)
    s.settimeout(2)
    s.connect(address)
    return True


def echo(address):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(1)
    s.sendto(b"x", address)
    return s.recv(1) == b"x"


def pair_to(path):
    a, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    a.sendto(b"x", path)
    return True


def memory(pid):
    with open(f"/proc/{pid}/maps") as f:
        start = int(f.readline().split("-")[0], 16)
    with open(f"/proc/{pid}/mem", "rb", 0) as f:
        f.seek(start)
        return len(f.read(8)) == 8


def vm_read(pid, at):
    class Vec(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]

    buf = ctypes.create_string_buffer(8)
    mine, other = Vec(ctypes.addressof(buf), 8), Vec(at, 8)
    n = libc.process_vm_readv(pid, ctypes.byref(mine), 1, ctypes.byref(other), 1, 0)
    # A process that may be looked at has nothing at 1: that is EFAULT.
    if n < 0 and ctypes.get_errno() not in (0, 14):
        raise OSError(ctypes.get_errno(), "process_vm_readv")
    return True


def ptrace(pid):
    if libc.ptrace(0x4206, pid, 0, 0) != 0:  # PTRACE_SEIZE
        raise OSError(ctypes.get_errno(), "ptrace")
    return True


pid = want["worker"]
attempt("token", lambda: contains(want["token"], want["secret"]))
attempt("link to the token", lambda: os.link(want["token"], "link") or contains("link", want["secret"]))
attempt("mode of the token", lambda: os.chmod(want["token"], 0o444) is None)
attempt("environment", lambda: contains(f"/proc/{pid}/environ", "SECRET_OF_WORKER"))
attempt("memory", lambda: memory(pid))
attempt("memory by call", lambda: vm_read(pid, 1))
attempt("ptrace", lambda: ptrace(pid))
attempt("signal", lambda: os.kill(pid, 0) is None)
attempt("limits of the worker", lambda: resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0)) is not None)
attempt("file of another session", lambda: contains(want["file"], "other"))
attempt("file outside", lambda: contains(want["outside"], "outside"))
attempt("write outside", lambda: open(want["outside"], "a").write("x"))
attempt("tcp", lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", want["tcp"])))
attempt("udp", lambda: echo(("127.0.0.1", want["udp"])))
attempt("abstract socket", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + want["abstract"]))
attempt("gateway's socket", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, want["gateway"]))
attempt("datagram socket", lambda: connect(socket.AF_UNIX, socket.SOCK_DGRAM, want["datagram"]))
attempt("datagram socket by a pair", lambda: pair_to(want["datagram"]))
print("tried")
