"""The templates of jobs/slurm on a Slurm of our own: jobs that hit their time limit, are requeued, pushed aside, lose a
node. Whatever happens to them, the outputs are those of undisturbed runs."""
import json
import os
import pathlib
import re
import shutil
import signal
import time
import unittest

from harness import DATA, TINY, TOKENMILL, Case, Result, tokenmill
from slurm_cluster import SlurmCluster

TEMPLATES = pathlib.Path(__file__).resolve().parents[2] / "jobs" / "slurm"
NUM_KINDS = 24  # of rows; more rows repeat them, seeds included


def rows(count):
    return [{"id": i, "prompt": f"kind {i % NUM_KINDS}", "seed": i % NUM_KINDS, "max_tokens": 120, "ignore_eos": True}
            for i in range(count)]


class Slurm(Case):
    @classmethod
    def setUpClass(cls):
        cls.cluster = SlurmCluster()
        cls.addClassCleanup(cls.cluster.close)

    def setUp(self):
        super().setUp()
        self.dir.chmod(0o755)
        self.answers = self.measure()

    def measure(self):
        """The answer of each kind of row, by an undisturbed run; once."""
        cls = type(self)
        if not hasattr(cls, "kinds"):
            result = self.job(rows(20 * NUM_KINDS), "--max-num-seqs", "2", ranks=2)
            cls.kinds = {row["id"]: row["outputs"] for row in result.rows[:NUM_KINDS]}
            cls.row_s = result.figures("run")[0] / (20 * NUM_KINDS)
        return cls.kinds

    def template(self, name, **lines):
        """A copy of a template with its two lines changed; returns its name in self.dir."""
        text = (TEMPLATES / name).read_text()
        self.assertEqual(text.count("# <-"), 2, name)
        for variable, value in ({"tokenmill": TOKENMILL, "job": self.dir / "job.yaml"} | lines).items():
            text, count = re.subn(rf"^{variable}=.*$", f"{variable}={value}", text, flags=re.MULTILINE)
            self.assertLessEqual(count, 1)
        self.write(name, text)
        return name

    def write_job(self, count, **more):
        self.write("in.jsonl", rows(count))
        job = {"model": TINY, "input": [str(self.dir / "in.jsonl")], "output": str(self.dir / "answers"),
               "max-num-seqs": 2, "commit-seconds": 0.2} | more
        self.write("job.yaml", "".join(f"{name}: {json.dumps(value)}\n" for name, value in job.items() if value is not None))

    def submit(self, name, *options, nodes=1, tasks=2, minutes=5):
        return self.cluster.submit(self.dir, name, f"--nodes={nodes}", f"--ntasks-per-node={tasks}", "--cpus-per-task=1",
                                   f"--time={minutes}", *options)

    def log(self):
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.dir.glob("*.log")))

    def wait_for(self, condition, timeout_s, what):
        end = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > end:
                self.fail(f"{what}\n{self.cluster.call('squeue')}\n{self.log()}")
            time.sleep(0.2)

    def wait_for_rows(self, run=0):
        """Until that run of the job has committed a row."""
        self.wait_for(lambda: any(path.stat().st_size > 64 for path in self.dir.glob(f"answers/journal/ledger/{run:05}-*")),
                      60, "no row was committed")

    def wait_for_output(self, count, output="answers", timeout_s=240):
        path = self.dir / output / "output.jsonl"
        self.wait_for(path.exists, timeout_s, f"{path} did not come")
        self.check_answers(path, count)

    def check_answers(self, path, count):
        """They are those of an undisturbed run."""
        answers = [json.loads(line) for line in path.read_text().splitlines()]
        self.assertEqual([row["id"] for row in answers], list(range(count)))
        for row in answers:
            self.assertEqual(row["outputs"], self.answers[row["id"] % NUM_KINDS])

    def wait_until_gone(self, job_id):
        self.wait_for(lambda: not self.cluster.is_queued(job_id), 60, "the job did not end")

    def count_for(self, seconds):
        """So many rows take about so long on two ranks."""
        return max(NUM_KINDS, int(seconds / type(self).row_s))

    def test_single_node_and_many_nodes(self):
        self.write_job(30)
        self.wait_until_gone(self.submit(self.template("single_node.sbatch")))
        self.wait_for_output(30)
        self.write_job(40, output=str(self.dir / "many"))
        self.wait_until_gone(self.submit(self.template("many_nodes.sbatch"), nodes=2))
        self.wait_for_output(40, "many")
        self.assertRegex((self.dir / "many/run.yaml").read_text(), r"host: \"node2\"")

    def test_container(self):
        """A program of that name stands in for apptainer: it checks its options and runs what is in the "image"."""
        (self.dir / "bin").mkdir()
        self.write("bin/apptainer", f'#!/bin/sh\n[ "$1 $2 $3" = "exec --nv --bind" ] || exit 99\nshift 5\n[ "$1" = tokenmill ] || '
                                    f'exit 98\nshift\nexec {TOKENMILL} "$@"\n').chmod(0o755)
        self.write_job(30)
        name = self.template("container.sbatch", image="image.sif")
        self.submit(name, f"--export=ALL,PATH={self.dir}/bin:{os.environ['PATH']}", nodes=2)
        self.wait_for_output(30)

    def test_two_nodes_of_four(self):
        """The template as it is, with a small model of that length: tp 4 inside the nodes, pp 2 across."""
        model = self.dir / "model"
        shutil.copytree(DATA / "models" / "tiny-spread8", model)
        config = json.loads((model / "config.json").read_text()) | {"max_position_embeddings": 32768}
        (model / "config.json").write_text(json.dumps(config))
        numerics = {"dtype": "float", "tp-invariant": 4}
        self.write_job(8, model=str(model), threads=1, **numerics)
        self.wait_until_gone(self.submit(self.template("qwen2_72b_two_nodes.sbatch"), nodes=2, tasks=4))
        self.assertTrue((self.dir / "answers/output.jsonl").exists(), self.log())
        result = Result(0, "", "", self.dir / "answers")
        self.assertEqual(result.layout, [(f"node{1 + rank // 4}", rank // 4, rank % 4, 0, rank // 4, rank % 4) for rank in range(8)])
        self.assertEqual(result.figures("max_model_len"), [16384])
        alone = self.job(rows(8), *(f"--{name}={value}" for name, value in numerics.items()), model=model)
        self.assertEqual(result.bytes, alone.bytes)

    def test_time_limit(self):
        for seconds in (90, 180, 360):  # more where the machine was slower when it was measured
            count, output = self.count_for(seconds), f"answers{seconds}"
            self.write_job(count, output=str(self.dir / output))
            job_id = self.submit(self.template("preemptible.sbatch"), minutes=1)
            self.wait_for_output(count, output)
            self.wait_until_gone(job_id)
            if "stopped before the time limit" in self.log():
                break
        self.assertIn("stopped before the time limit", self.log())
        self.assertNotIn("DUE TO TIME LIMIT", self.log())

    def test_requeue(self):
        count = self.count_for(15)
        self.write_job(count)
        job_id = self.submit(self.template("preemptible.sbatch"))
        self.wait_for_rows()
        self.cluster.call("scontrol", "requeue", job_id)
        self.wait_for_output(count)
        self.assertIn("continuing: ", self.log())

    def test_preemption(self):
        count = self.count_for(15)
        self.write_job(count)
        job_id = self.submit(self.template("preemptible.sbatch"), "--exclusive", nodes=2)
        self.wait_for_rows()
        self.write("urgent.sh", "#!/bin/sh\ntrue\n")
        self.cluster.submit(self.dir, "urgent.sh", "--partition=urgent", "--nodes=2", "--exclusive", "--output=urgent.out")
        self.wait_for(lambda: (self.dir / "urgent.out").exists(), 90, "the urgent job did not run")
        self.wait_for_output(count)
        self.assertRegex(self.log(), r"continuing: [1-9]")
        self.assertGreaterEqual(int(self.cluster.job(job_id)["Restarts"]), 1)

    def test_node_failure(self):
        count = self.count_for(15)
        self.write_job(count)
        self.submit(self.template("preemptible.sbatch"), nodes=2)
        self.wait_for_rows()
        self.cluster.call("scontrol", "update", "NodeName=node2", "State=DOWN", "Reason=test")
        self.cluster.resume("node2")
        self.wait_for_output(count)
        self.assertRegex(self.log(), r"continuing: [1-9]")

    def rank_pid(self, rank, shard=None):
        """The process of a rank of the job that runs, or of that shard of it."""
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(f"{TOKENMILL}\0run\0{self.dir}/".encode()) \
                        and (shard is None or f"\0--shard\0{shard}\0".encode() in (entry / "cmdline").read_bytes()) \
                        and f"PMIX_RANK={rank}\0".encode() in (entry / "environ").read_bytes():
                    return int(entry.name)
            except OSError:  # it is gone
                continue
        self.fail(f"no rank {rank}\n{self.log()}")

    def test_dying_rank(self):
        """srun -K1 gives the others TERM, which they take to save their rows; KILL would come after half a minute."""
        count = self.count_for(25)
        self.write_job(count)
        name = self.template("many_nodes.sbatch")
        for run, (rank, number) in enumerate([(0, signal.SIGKILL), (3, signal.SIGSEGV), (2, signal.SIGKILL)]):
            with self.subTest(rank=rank, signal=number):
                job_id = self.submit(name, nodes=2)
                self.wait_for_rows(run)
                pid = self.rank_pid(rank)
                start = time.monotonic()
                os.kill(pid, number)
                self.wait_until_gone(job_id)
                self.assertLess(time.monotonic() - start, 25, self.log())
                self.assertFalse((self.dir / "answers/output.jsonl").exists())
        self.assertNotIn("--stall-seconds", self.log())  # none of them stalled for so long
        self.submit(name, nodes=2)
        self.wait_for_output(count)
        self.assertRegex(self.log(), r"continuing: [1-9]")

    def test_array_of_shards(self):
        self.write_job(83, output=None)
        job_id = self.submit(self.template("array_shards.sbatch", shards="4"), "--array=0-3")
        self.wait_until_gone(job_id)
        merged = tokenmill("merge", self.dir / "answers", "--output", self.dir / "answers.jsonl")
        self.assertEqual(merged.code, 0, merged.stderr + self.log())
        self.check_answers(self.dir / "answers.jsonl", 83)

    def test_independent_steps(self):
        """After a stop no other shard begins; a step that is killed begins again where it was, and the others do not;
        rows with errors are merged, too."""
        count, shards = self.count_for(30), 4
        broken = self.write("z.jsonl", [{"id": count, "max_tokens": 1}])
        self.write_job(count, output=None, input=[str(self.dir / "in.jsonl"), str(broken)])
        job_id = self.submit(self.template("independent_steps.sbatch", shards=str(shards)), nodes=2)
        directories = [self.dir / f"answers/shard-{shard:05}-of-{shards:05}" for shard in range(shards)]

        def wait_for_rows(shard, run):
            self.wait_for(lambda: any(path.stat().st_size > 64 for path in directories[shard].glob(f"journal/ledger/{run:05}-*")),
                          60, "no row was committed")
        wait_for_rows(0, 0)
        wait_for_rows(1, 0)
        self.cluster.call("scancel", "--signal=USR1", job_id)
        self.wait_for(lambda: self.log().count("stopped by a signal") == 2, 60, "a step was not stopped")
        self.assertEqual([shard.exists() for shard in directories], [True, True, False, False])
        wait_for_rows(0, 1)
        os.kill(self.rank_pid(1, f"0/{shards}"), signal.SIGKILL)
        self.wait_for(lambda: not self.cluster.is_queued(job_id), 120, "the job did not end")
        lines = (self.dir / "answers.jsonl").read_text().splitlines(keepends=True)
        self.assertEqual(json.loads(lines[-1])["error"]["code"], "invalid_request", lines[-1])
        self.write("whole.jsonl", "".join(lines[:-1]))
        self.check_answers(self.dir / "whole.jsonl", count)
        self.assertRegex(self.log(), r"shard 0: try 1 ended with \d+")
        self.assertNotRegex(self.log(), r"shard [123]: try|not merged")
        self.assertIn("continuing: ", self.log())
        runs = [(shard / "journal/owner").read_text().split("run ")[1].split()[0] for shard in directories]
        self.assertEqual(runs[2:], ["0", "0"])


if __name__ == "__main__":
    unittest.main()
