"""A Slurm of our own on one machine: munge, a controller and two nodes, without systemd, accounts or cgroups. Needs root and
the Debian packages slurmctld, slurmd, slurm-client and munge."""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from harness import MPI_ENVIRONMENT

NODES = ("node1", "node2")
CPUS, GPUS = 8, 4  # of each node, as Slurm is told
TOOLS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "scancel", "sinfo", "squeue", "unshare")


def free_ports(count):
    """The first of so many consecutive ports that nobody listens on."""
    for first in range(20000 + os.getpid() % 10000, 60000, count):
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("", port))
            return first
        except OSError:
            continue
    raise unittest.SkipTest("cannot make a cluster: no free ports")


class SlurmCluster:
    """Made by __init__, which raises SkipTest with the reason where it cannot; ended by close()."""

    def __init__(self):
        if os.geteuid() != 0:
            raise unittest.SkipTest("cannot make a cluster: not root")
        for tool in TOOLS:
            if shutil.which(tool) is None:
                raise unittest.SkipTest(f"cannot make a cluster: no program {tool} (Debian: slurmctld, slurmd, slurm-client, munge)")
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="tokenmill-slurm-"))
        self.dir.chmod(0o755)
        for name in ("etc", "state", "run", "log"):
            (self.dir / name).mkdir()
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH", "OMPI"))}
        self.environment.update(MPI_ENVIRONMENT, SLURM_CONF=str(self.dir / "etc/slurm.conf"))
        try:
            self._start()
        except (OSError, subprocess.SubprocessError) as error:
            self.close()
            raise unittest.SkipTest(f"cannot make a cluster: {getattr(error, 'stderr', None) or error}") from error

    def _write_configuration(self):
        port = free_ports(len(NODES) + 1)
        run, log = self.dir / "run", self.dir / "log"
        lines = [
            "ClusterName=test", f"SlurmctldHost={socket.gethostname().split('.')[0]}(127.0.0.1)", f"SlurmctldPort={port}",
            "SlurmUser=root", "SlurmdUser=root", f"StateSaveLocation={self.dir}/state",
            f"SlurmctldPidFile={run}/slurmctld.pid", f"SlurmctldLogFile={log}/slurmctld.log",
            f"SlurmdPidFile={run}/%n.pid", f"SlurmdLogFile={log}/%n.log", f"SlurmdSpoolDir={run}/spool.%n",
            f"TmpFS={run}/tmp.%n",  # else the nodes' PMIx servers want the same directory
            # A job that is requeued waits until its credential has expired; below 5 s the default of 120 holds.
            "AuthType=auth/munge", f"AuthInfo=socket={run}/munge.sock,cred_expire=5",
            "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "JobAcctGatherType=jobacct_gather/none",
            "AccountingStorageType=accounting_storage/none", "JobCompType=jobcomp/none", "MailProg=/bin/true",
            "SelectType=select/cons_tres", "SelectTypeParameters=CR_CPU", "SlurmdParameters=config_overrides",
            "SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_min_interval=100000",
            "PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE", "MpiDefault=none", "GresTypes=gpu",
            "ReturnToService=2", "KillWait=30", "SlurmctldTimeout=10", "SlurmdTimeout=10"]
        gpus = []
        for number, node in enumerate(NODES):
            (run / f"spool.{node}").mkdir()
            (run / f"tmp.{node}").mkdir()
            lines.append(f"NodeName={node} NodeAddr=127.0.0.1 Port={port + 1 + number} CPUs={CPUS} RealMemory=1000 "
                         f"Gres=gpu:{GPUS} State=UNKNOWN")
            gpus.append(f"NodeName={node} Name=gpu File=/dev/tty[{GPUS * number + 1}-{GPUS * number + GPUS}]")  # any devices
        nodes = ",".join(NODES)
        lines += [f"PartitionName=batch Nodes={nodes} Default=YES PriorityTier=1 GraceTime=2 OverSubscribe=NO",
                  f"PartitionName=urgent Nodes={nodes} PriorityTier=10 PreemptMode=OFF"]
        (self.dir / "etc/slurm.conf").write_text("\n".join(lines) + "\n")
        (self.dir / "etc/gres.conf").write_text("\n".join(gpus) + "\n")

    def _start(self):
        self._write_configuration()
        key, run = self.dir / "etc/munge.key", self.dir / "run"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        self._call("munged", "--force", f"--key-file={key}", f"--socket={run}/munge.sock", f"--pid-file={run}/munged.pid",
                   f"--log-file={self.dir}/log/munged.log", f"--seed-file={run}/munge.seed")
        configuration = self.environment["SLURM_CONF"]
        self._call("slurmctld", "-c", "-f", configuration)
        for node in NODES:  # each with a host name of its own: MPI tells nodes apart by it
            self._call("unshare", "--uts", "sh", "-c", f"hostname {node} && exec slurmd -c -N {node} -f {configuration}")
        self.wait(lambda: self.call("sinfo", "-h", "-N", "-t", "idle", "-p", "batch").count("\n") == len(NODES), 30,
                  "the nodes are not idle")

    def _call(self, *command):
        return subprocess.run(command, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60, check=True).stdout

    def call(self, *command):
        """A client's standard output; raises when it fails. One whose connection slurmctld closes, as it may on a busy
        machine, dies of SIGPIPE: it asks again."""
        for _ in range(5):
            try:
                return self._call(*command)
            except subprocess.CalledProcessError as error:
                if error.returncode != -signal.SIGPIPE:
                    raise
                time.sleep(0.5)
        return self._call(*command)

    def wait(self, condition, timeout_s, otherwise):
        end = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > end:
                raise subprocess.SubprocessError(otherwise)
            time.sleep(0.1)

    def submit(self, directory, script, *options):
        """Returns the job's id."""
        done = subprocess.run(["sbatch", "--parsable", *options, script], cwd=directory, env=self.environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{script}: {done.stderr}")
        return done.stdout.strip()

    def job(self, job_id):
        """What scontrol shows of a job (of an array: its last element)."""
        fields = {}
        for word in self.call("scontrol", "show", "job", "--oneliner", job_id).split():
            name, _, value = word.partition("=")
            fields[name] = value
        return fields

    def resume(self, node):
        """Brings a node back that is down, unless it has come by itself."""
        subprocess.run(["scontrol", "update", f"NodeName={node}", "State=RESUME"], env=self.environment, capture_output=True,
                       check=False, timeout=60)

    def is_queued(self, job_id):
        return self.call("squeue", "-h", "-j", job_id) != "" if job_id in self.call("squeue", "-h", "-o", "%F") else False

    def close(self):
        pids = [int(text) for path in (self.dir / "run").glob("*.pid") if (text := path.read_text().strip())]
        environment, quiet = self.environment, {"capture_output": True, "check": False, "timeout": 60}
        subprocess.run(["scancel", "--user", "root"], env=environment, **quiet)
        end = time.monotonic() + 20
        while time.monotonic() < end and subprocess.run(["squeue", "-h"], env=environment, **quiet).stdout:
            time.sleep(0.1)  # a daemon that ends right after a step leaves the step's own behind
        for pid in pids:
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
        while time.monotonic() < end + 10 and any(is_alive(pid) for pid in pids):
            time.sleep(0.1)
        shutil.rmtree(self.dir, ignore_errors=True)


def is_alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
    return "\nState:\tZ" not in state
