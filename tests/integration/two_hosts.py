"""Two "hosts" on one machine: network namespaces joined by a virtual cable, each with a host name of its own. MPI sees two
nodes and talks TCP between them; files and processes are shared. Needs root, CAP_NET_ADMIN and iproute2."""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from harness import MPIEXEC

CABLE = "cable"  # the name of both ends, each in its own namespace
ADDRESSES = ("10.231.7.1", "10.231.7.2")  # seen in the two namespaces only


class TwoHosts:
    """Made by __init__, which raises SkipTest with the reason where it cannot; removed by close().

    names: the host names (also those of the namespaces), unique to this process."""

    def __init__(self):
        self.names = tuple(f"tm{os.getpid()}{letter}" for letter in "ab")
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="tokenmill-hosts-"))
        try:
            self._check_tools()
            self._make()
        except unittest.SkipTest:
            self.close()
            raise
        except (OSError, subprocess.SubprocessError) as error:
            self.close()
            reason = getattr(error, "stderr", None) or error
            raise unittest.SkipTest(f"cannot make two hosts: {str(reason).strip()}") from error

    @staticmethod
    def _check_tools():
        if os.geteuid() != 0:
            raise unittest.SkipTest("cannot make two hosts: not root")
        for tool in ("ip", "unshare", "mount"):
            if shutil.which(tool) is None:
                raise unittest.SkipTest(f"cannot make two hosts: no program {tool} (Debian: iproute2, util-linux, mount)")

    def _make(self):
        for name in self.names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        first, second = self.names
        ip("link", "add", CABLE, "netns", first, "type", "veth", "peer", "name", CABLE, "netns", second)
        for name, address in zip(self.names, ADDRESSES):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", CABLE)
            ip("-n", name, "link", "set", CABLE, "up")
        self.hosts_file = self.dir / "hosts"
        self.hosts_file.write_text("127.0.0.1 localhost\n" +
                                   "".join(f"{address} {name}\n" for address, name in zip(ADDRESSES, self.names)))
        # What mpirun calls instead of ssh: a host, then a command line.
        self.remote_shell = self.dir / "remote_shell"
        self.remote_shell.write_text('#!/bin/sh\nhost=$1; shift\n'
                                     'exec ip netns exec "$host" unshare --uts sh -c "hostname $host; $*"\n')
        self.remote_shell.chmod(0o755)
        subprocess.run([*self._on_first_host(), "true"], check=True, capture_output=True, text=True, timeout=30)

    def _on_first_host(self):
        """A command line that goes on with a program: it replaces itself by it, so that its process id is the program's."""
        return ["ip", "netns", "exec", self.names[0], "unshare", "--uts", "--mount", "sh", "-c",
                'hostname "$0" && mount --bind "$1" /etc/hosts && shift && exec "$@"', self.names[0], str(self.hosts_file)]

    def mpirun(self, slots, *options):
        """The launcher for one rank in each of the slots, (on the first host, on the second)."""
        places = ",".join(f"{name}:{count}" for name, count in zip(self.names, slots))
        return [*self._on_first_host(), MPIEXEC, "--mca", "plm_rsh_agent", str(self.remote_shell), "--host", places,
                *options, "-n", str(sum(slots))]

    def processes(self, host):
        """Ids of the processes on a host; all of them were started through this object."""
        done = subprocess.run(["ip", "netns", "pids", self.names[host]], capture_output=True, text=True, check=False)
        return [int(pid) for pid in done.stdout.split()]

    def rank_process(self, host, rank):
        """Process id of a world rank of tokenmill, or None."""
        for pid in self.processes(host):
            try:
                variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                name = pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
            except OSError:
                continue  # it ended meanwhile
            if name == "tokenmill" and f"OMPI_COMM_WORLD_RANK={rank}".encode() in variables:
                return pid
        return None

    def cable_bytes(self):
        """Bytes that went over the cable so far, both directions."""
        return sum(int(subprocess.run(["ip", "netns", "exec", self.names[0], "cat",
                                       f"/sys/class/net/{CABLE}/statistics/{way}_bytes"],
                                      capture_output=True, text=True, check=True).stdout) for way in ("rx", "tx"))

    def leftovers(self):
        """What runs should not leave: shared memory and session directories carry the host's name."""
        return [str(path) for name in self.names for place in ("/dev/shm", tempfile.gettempdir())
                for path in pathlib.Path(place).glob(f"*{name}*")]

    def wait_until_idle(self, seconds):
        """Whether both hosts have no process any more."""
        end = time.monotonic() + seconds
        while any(self.processes(host) for host in (0, 1)):
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def close(self):
        for host, name in enumerate(self.names):
            for pid in self.processes(host):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        shutil.rmtree(self.dir, ignore_errors=True)


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=30)
