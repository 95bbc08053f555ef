"""Runs the tokenmill program as users do, under mpirun when ranks are asked for. Python standard library only."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

TOKENMILL = os.environ["TOKENMILL"]
MPIEXEC = os.environ["TOKENMILL_MPIEXEC"]
DATA = pathlib.Path(os.environ["TOKENMILL_TEST_DATA"])
TINY = str(DATA / "models" / "tiny-llama")
TIMEOUT_S = 120


class Result:
    """What one run left: exit code, standard error, and the output directory's files."""

    def __init__(self, code, stdout, stderr, output):
        self.code, self.stdout, self.stderr, self.output = code, stdout, stderr, pathlib.Path(output or "/nonexistent")

    @property
    def bytes(self):
        return (self.output / "output.jsonl").read_bytes()

    @property
    def rows(self):
        def refuse(text):
            raise ValueError(f"{text} is no JSON")
        return [json.loads(line, parse_constant=refuse) for line in self.bytes.decode("utf-8").splitlines()]

    def figures(self, name):
        """All values of `name: value` in run.yaml, as numbers."""
        text = (self.output / "run.yaml").read_text()
        return [float(value) for value in re.findall(rf"^[ -]*{name}: ([-0-9.e+]+)$", text, re.MULTILINE)]

    @property
    def layout(self):
        """Per world rank of run.yaml: (host, node, local rank, dp rank, pp rank, tp rank)."""
        entries = re.findall(r"- \{rank: (\d+), host: \"?([^\",]+)\"?, node: (\d+), local_rank: (\d+), dp_rank: (\d+), "
                             r"pp_rank: (\d+), tp_rank: (\d+),", (self.output / "run.yaml").read_text())
        assert [int(rank) for rank, *_ in entries] == list(range(len(entries))), entries
        return [(host, *map(int, numbers)) for _, host, *numbers in entries]


# mpirun as root, more ranks than cores, and no rank bound to one of them.
MPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
                   "OMPI_MCA_hwloc_base_binding_policy": "none"}


def environment(**changes):
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "TOKENMILL_LOG"))}
    variables.update(MPI_ENVIRONMENT | changes)
    return variables


def tokenmill(*arguments, ranks=0, stdin="", env=None, prefix=(), launcher=None):
    """Runs the program by the launcher; without one by mpirun, or alone (ranks 0). Returns a Result without output directory."""
    launcher = launcher or ([MPIEXEC, "-n", str(ranks)] if ranks else [])
    done = subprocess.run([*launcher, *prefix, TOKENMILL, *map(str, arguments)], input=stdin, capture_output=True,
                          text=True, encoding="utf-8", timeout=TIMEOUT_S, env=env or environment(), check=False)
    return Result(done.returncode, done.stdout, done.stderr, None)


class Case(unittest.TestCase):
    """A test case with a directory of its own."""

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="tokenmill-test-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.runs = 0

    def write(self, name, content):
        """Writes bytes, text, or rows (one JSON value a line); returns the path."""
        path = self.dir / name
        if isinstance(content, list):
            content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return path

    def job(self, rows, *flags, ranks=0, model=TINY, expect=0, env=None, launcher=None):
        """Runs rows (or a path, or paths) to a new output directory and checks the exit code."""
        self.runs += 1
        output = self.dir / f"out{self.runs}"
        paths = rows if isinstance(rows, (str, pathlib.Path)) else None
        inputs = [paths] if paths else rows if rows and isinstance(rows[0], pathlib.Path) else [
            self.write(f"in{self.runs}.jsonl", rows)]
        result = tokenmill("run", "--model", model, "--output", output, "--input", *inputs, *flags, ranks=ranks, env=env,
                           launcher=launcher)
        result.output = output
        self.assertEqual(result.code, expect, f"{flags}\n{result.stderr}")
        return result


def available_isas():
    """The --cpu-isa values this CPU can run."""
    flags = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    avx512 = all(f" {name}" in flags for name in ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"))
    return ["avx2"] + (["avx512"] if avx512 else []) + (["avx512_bf16"] if avx512 and " avx512_bf16" in flags else [])
