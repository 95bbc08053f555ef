"""tokenmill merge: what the journals of finished, stopped and running jobs hold, in one file."""
import os
import subprocess
import time
import unittest

from harness import TINY, TOKENMILL, Case, environment, tokenmill


class Merge(Case):
    def rows_from(self, first, count, max_tokens=4):
        return self.write(f"in{first}.jsonl", [{"id": first + i, "prompt": f"{i} mills", "max_tokens": max_tokens,
                                                "ignore_eos": True} for i in range(count)])

    def run_to(self, name, rows, *flags, expect=0, env=None):
        result = tokenmill("run", "--model", TINY, "--input", rows, "--output", self.dir / name, *flags, env=env)
        self.assertEqual(result.code, expect, result.stderr)
        return self.dir / name

    def merge(self, *arguments, expect=0):
        result = tokenmill("merge", *arguments, "--output", self.dir / "merged.jsonl")
        self.assertEqual(result.code, expect, result.stderr)
        return (self.dir / "merged.jsonl").read_bytes() if expect == 0 else result.stderr

    def test_shards_follow_each_other(self):
        one, two = self.run_to("one", self.rows_from(0, 5)), self.run_to("two", self.rows_from(100, 3))
        outputs = [(path / "output.jsonl").read_bytes() for path in (one, two)]
        self.assertEqual(self.merge(one, two), outputs[0] + outputs[1])
        self.assertEqual(self.merge(two, one), outputs[1] + outputs[0])
        self.assertEqual(self.merge(one), outputs[0])
        for arguments, text in [((one, one), "is given twice"), ((self.dir,), "holds no journal"),
                                ((self.dir / "none",), "none: no such directory"),
                                (("--partial", "none"), "none: no such directory"),
                                ((), "merge needs output directories")]:
            self.assertIn(text, self.merge(*arguments, expect=2))
        self.assertEqual((self.dir / "merged.jsonl").read_bytes(), outputs[0])  # of the last one that went well

    def test_inputs_and_results_are_not_overwritten(self):
        one, two = self.run_to("one", self.rows_from(0, 5)), self.run_to("two", self.rows_from(100, 3))
        os.link(self.dir / "in0.jsonl", self.dir / "other_name.jsonl")
        (self.dir / "link.jsonl").symlink_to(self.dir / "none")
        for name, text in (("in0.jsonl", "is an input of"), ("other_name.jsonl", "is an input of"), ("one/output.jsonl", "is a result of"),
                           ("two/run.yaml", "is a result of"), ("link.jsonl", "is a symbolic link")):
            with self.subTest(name=name):
                before = (self.dir / name).read_bytes() if (self.dir / name).exists() else None
                result = tokenmill("merge", one, two, "--output", self.dir / name)
                self.assertEqual(result.code, 2, result.stderr)
                self.assertIn(text, result.stderr)
                self.assertEqual((self.dir / name).read_bytes() if (self.dir / name).exists() else None, before)

    def test_shards_of_one_job(self):
        """They give the bytes of one run over all rows: ids, streams and order are those of the whole input."""
        rows = self.write("in.jsonl", [{"prompt": f"{i} mills", "max_tokens": 4, "temperature": 0.9} for i in range(11)])
        whole = (self.run_to("whole", rows) / "output.jsonl").read_bytes()
        job = self.dir / "job"
        self.run_to("job", rows, "--shard", "0/3", "--date", "2026-11-29")
        self.run_to("job", rows, "--shard", "2/3")  # takes the date of the other one
        self.assertIn("job: 1 of 3 shards has not begun: 1; run", self.merge(job, expect=2))
        partial = tokenmill("merge", job, "--partial", "--output", self.dir / "partial.jsonl")
        self.assertEqual((partial.code, len((self.dir / "partial.jsonl").read_bytes().splitlines())), (0, 4 + 3))
        self.assertIn("job: 1 of 3 shards has not begun: 1\n", partial.stderr)
        self.run_to("job", rows, "--shard", "1/3", "--seed", "7")
        self.assertRegex(self.merge(job, expect=2), "are shards of different jobs: seed was 0 and is 7")
        self.run_to("job", rows, "--shard", "1/3", "--restart")
        self.assertEqual(self.merge(job), whole)
        self.assertEqual(self.merge(*(job / f"shard-0000{shard}-of-00003" for shard in range(3))), whole)
        for text in ("3/3", "-1/3", "1", "1/", "a/b", "0/100000"):
            refused = tokenmill("run", "--model", TINY, "--input", rows, "--output", job, f"--shard={text}")
            self.assertEqual(refused.code, 2)
            self.assertIn(f"--shard is {text}; it must be K/N", refused.stderr)

    def test_shards_that_have_not_begun_are_named(self):
        for shard in (0, 1, 39):
            (self.dir / f"job/shard-{shard:05}-of-00040").mkdir(parents=True)
        few = "40 of 40 shards have not begun: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 24 more; "
        self.assertIn(few + "run", self.merge(self.dir / "job", expect=2))
        self.assertIn(few + "there is nothing to merge", self.merge(self.dir / "job", "--partial", expect=2))
        self.assertFalse((self.dir / "merged.jsonl").exists())

    def test_one_division_of_the_rows_in_a_directory(self):
        """What merge would refuse is refused when it begins, and leaves what is there as it was."""
        rows, job, whole = self.rows_from(0, 5), self.dir / "job", self.dir / "whole"
        self.run_to("job", rows, "--shard", "0/2")
        self.run_to("whole", rows)
        for directory, flags, text in ((job, (), "job holds other shards of a job (shard-00000-of-00002), which"),
                                       (job, ("--restart",), "put together with a run of all rows"),
                                       (job, ("--shard", "0/4"), "put together with one of 4"),
                                       (whole, ("--shard", "0/2"), "whole holds a job of all rows")):
            with self.subTest(directory=directory.name, flags=flags):
                before = sorted(path.name for path in directory.iterdir())
                for command in ("run", "validate"):
                    refused = tokenmill(command, "--model", TINY, "--input", rows, "--output", directory, *flags)
                    self.assertEqual(refused.code, 2, refused.stderr)
                    self.assertIn(text, refused.stderr)
                self.assertEqual(sorted(path.name for path in directory.iterdir()), before)
        (whole / "journal").rename(job / "journal")
        self.assertIn("holds a job's journal and shards", self.merge(job, expect=2))

    def test_a_file_whose_name_says_something_else_is_not_written(self):
        lines, tables = self.run_to("lines", self.rows_from(0, 2)), self.run_to("tables", self.rows_from(5, 2), "--output-format", "hdf5")
        for job, name, text in ((lines, "m.h5", "would hold lines of JSON; name it DIR/m.jsonl, or give --output-format hdf5"),
                                (lines, "m.hdf5", "would hold lines of JSON; name it DIR/m.jsonl"),
                                (tables, "m.jsonl", "would hold HDF5 tables; name it DIR/m.h5, or give --output-format jsonl"),
                                (tables, "m.json", "would hold HDF5 tables; name it DIR/m.h5"),
                                (lines, "m.jsonl.gz", "would not be compressed; name it DIR/m.jsonl, and"),
                                (lines, "m.zst", "would not be compressed; name it DIR/m, and"),
                                (tables, "m.h5.zstd", "would not be compressed; name it DIR/m.h5, and"),
                                (lines, "-", "would be a file of that name")):
            with self.subTest(name=name):
                output = name if name == "-" else self.dir / name
                refused = tokenmill("merge", job, "--output", output)
                self.assertEqual(refused.code, 2, refused.stderr)
                self.assertIn(f"--output {output} {text.replace('DIR', str(self.dir))}", refused.stderr)
                self.assertFalse(os.path.exists(output))

    def test_every_format_of_the_jobs(self):
        """merge writes what the runs were told to write, hidden states too: the bytes of one run's files."""
        rows = self.rows_from(0, 9)
        tables = ("--output-format", "jsonl,hdf5", "--hidden-states", "mean")
        whole = self.run_to("whole", rows, *tables)
        expected = [(whole / name).read_bytes() for name in ("output.jsonl", "output.h5")]

        def merged(*arguments, names=("merged.jsonl", "merged.h5"), expect=0):
            for path in self.dir.glob("merged*"):
                path.unlink()
            result = tokenmill("merge", *arguments, "--output", self.dir / names[0])
            self.assertEqual(result.code, expect, result.stderr)
            self.assertEqual(sorted(path.name for path in self.dir.glob("merged*")), sorted(names) if expect == 0 else [])
            return [(self.dir / name).read_bytes() for name in names] if expect == 0 else result.stderr

        self.assertEqual(merged(whole), expected)
        self.assertEqual(merged(whole, names=("merged.h5", "merged.jsonl")), expected[::-1])
        self.assertEqual(merged(whole, names=("merged.hdf5", "merged.jsonl")), expected[::-1])
        self.assertEqual(merged(whole, names=("merged.txt", "merged.txt.h5")), expected)
        self.assertEqual(merged(whole, "--output-format", "jsonl", names=("merged.jsonl",)), expected[:1])
        self.assertEqual(merged(whole, "--output-format", "hdf5", names=("merged.tables",)), expected[1:])
        for shard in range(4):
            self.run_to("shards", rows, *tables, "--shard", f"{shard}/4", *(("--output-layout", "parts") if shard == 2 else ()))
        self.assertEqual(merged(self.dir / "shards"), expected)
        # Of a job that is stopped: its finished rows, by the formats of its latest run.
        stop = environment(LD_PRELOAD=os.environ["TOKENMILL_FAULTS"], TOKENMILL_FAULT_PATH="/stopped/journal/ledger",
                           TOKENMILL_FAULT="kill:9")
        self.run_to("stopped", rows, *tables, "--commit-seconds", 0, "--max-num-seqs", 2, expect=-9, env=stop)
        lines, some = merged(self.dir / "stopped", "--partial")
        self.assertTrue(0 < lines.count(b"\n") < 9)
        self.assertGreater(len(some), 1000)
        self.run_to("stopped", rows, *tables[2:], "--output-format", "hdf5", expect=0)
        self.assertEqual(merged(self.dir / "stopped", names=("merged.h5",)), expected[1:])
        # Jobs that say different things: both formats, and where one has no hidden states neither can be one file.
        other = self.run_to("other", self.rows_from(100, 3))
        self.assertIn("hidden states of", merged(whole, other, expect=2))
        plain = self.run_to("plain", self.rows_from(200, 2), "--output-format", "hdf5")
        lines, some = merged(other, plain)
        self.assertEqual(lines, (other / "output.jsonl").read_bytes() + merged(plain, "--output-format", "jsonl",
                                                                               names=("merged.jsonl",))[0])
        for path in ("in100.jsonl", "in200.jsonl"):
            self.assertIn(str(self.dir / path).encode(), some)

    def test_a_stopped_job_has_what_was_finished(self):
        rows = self.rows_from(0, 8)
        expected = (self.run_to("undisturbed", rows) / "output.jsonl").read_bytes().splitlines(keepends=True)
        stop = environment(LD_PRELOAD=os.environ["TOKENMILL_FAULTS"], TOKENMILL_FAULT_PATH="/stopped/journal/ledger",
                           TOKENMILL_FAULT="kill:9")
        stopped = self.run_to("stopped", rows, "--commit-seconds", 0, "--max-num-seqs", 2, expect=-9, env=stop)
        self.assertIn("of 8 rows; continue the job by its command, or give --partial", self.merge(stopped, expect=2))
        self.assertFalse((self.dir / "merged.jsonl").exists())
        lines = self.merge(stopped, "--partial").splitlines(keepends=True)
        self.assertTrue(0 < len(lines) < 8, lines)
        self.assertEqual(lines, [line for line in expected if line in lines])
        self.run_to("stopped", rows)
        self.assertEqual(self.merge(stopped), b"".join(expected))

    def test_a_running_job_is_not_disturbed(self):
        rows = self.rows_from(0, 400, max_tokens=60)
        output = self.dir / "running"
        job = subprocess.Popen([TOKENMILL, "run", "--model", TINY, "--input", rows, "--output", output, "--max-num-seqs", "2",
                                "--commit-seconds", "0.01"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env=environment())
        ledger = output / "journal" / "ledger" / "00000-00000.ledger"
        while job.poll() is None and not (ledger.exists() and ledger.stat().st_size > 200):
            time.sleep(0.01)
        early = self.merge(output, "--partial")
        self.assertEqual(job.wait(timeout=120), 0)
        expected = (output / "output.jsonl").read_bytes().splitlines()
        self.assertTrue(set(early.splitlines()) <= set(expected))
        self.assertGreater(early.count(b"\n"), 1)
        self.assertEqual(len(expected), 400)


if __name__ == "__main__":
    unittest.main(verbosity=2)
