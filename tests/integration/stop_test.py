"""Jobs that are told to stop while they run, by signals and by their time; the same command again ends them."""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

import harness
from harness import MPIEXEC, TINY, TOKENMILL, Case


def rows(count, tokens):
    return [{"id": i, "prompt": f"row {i}", "max_tokens": tokens, "ignore_eos": True, "logprobs": 1, "temperature": 0.8}
            for i in range(count)]


def children(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Stop(Case):
    def start(self, *flags, ranks, inputs, output, env=None):
        launcher = [MPIEXEC, "-n", str(ranks)] if ranks else []
        return subprocess.Popen([*launcher, TOKENMILL, "run", "--model", TINY, "--input", inputs, "--output", output,
                                 "--max-num-seqs", "8", "--max-num-batched-tokens", "64", "--commit-seconds", "0.1", *flags],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=env or harness.environment())

    def wait_for_rows(self, process, output):
        """Until a row is committed."""
        end = time.monotonic() + 60
        while not any(p.stat().st_size > 64 for p in (output / "journal/ledger").glob("*.ledger")):
            self.assertLess(time.monotonic(), end)
            self.assertIsNone(process.poll(), "it ended by itself")
            time.sleep(0.02)

    def finish(self, inputs, output, ranks, flags=()):
        process = self.start(*flags, ranks=ranks, inputs=inputs, output=output)
        _, errors = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0, errors)
        return errors

    def test_signals(self):
        inputs = self.write("in.jsonl", rows(240, 160))
        whole = self.dir / "whole"
        tables = ("--output-format", "jsonl,hdf5", "--hidden-states", "mean")
        self.finish(inputs, whole, 2, tables)
        cases = [("USR1 to mpirun", 2, signal.SIGUSR1, lambda job: job, (), (1, ())),
                 ("USR2 to one rank of three", 3, signal.SIGUSR2, lambda job: children(job)[2], (), (2, ())),
                 ("TERM to a follower of a pipeline", 2, signal.SIGTERM, lambda job: children(job)[1], ("-pp", "2"), (2, ())),
                 ("TERM to a process alone", 0, signal.SIGTERM, lambda job: job, (), (2, ("-pp", "2")))]
        for what, ranks, number, target, flags, again in cases:
            with self.subTest(what):
                output = self.dir / what.replace(" ", "-")
                process = self.start(*flags, *tables, ranks=ranks, inputs=inputs, output=output)
                self.wait_for_rows(process, output)
                process.send_signal(signal.SIGCONT)
                subprocess.run(["kill", f"-{int(number)}", str(target(process.pid))], check=True)
                _, errors = process.communicate(timeout=120)
                self.assertEqual(process.returncode, 75, errors)
                self.assertIn("stopped by a signal", errors)
                self.assertFalse((output / "output.jsonl").exists())
                text = (output / "run.yaml").read_text()
                self.assertRegex(text, r"saved_unfinished: [1-9]" if number == signal.SIGTERM else r"saved_unfinished: ")
                self.finish(inputs, output, again[0], (*again[1], *tables))
                for name in ("output.jsonl", "output.h5"):
                    self.assertEqual((output / name).read_bytes(), (whole / name).read_bytes(), name)

    def test_time(self):
        """The time that a run has is used and kept, as often as it takes; nothing is generated twice."""
        inputs = self.write("in.jsonl", rows(1500, 200))
        whole, output = self.dir / "whole", self.dir / "out"
        start = time.monotonic()
        self.finish(inputs, whole, 2)
        limit_s = max(2.0, round(0.4 * (time.monotonic() - start), 1))
        generated, codes = 0, []
        while not codes or codes[-1] == 75:
            self.assertLess(len(codes), 40)
            start = time.monotonic()
            process = self.start("--max-seconds", str(limit_s), ranks=2, inputs=inputs, output=output)
            _, errors = process.communicate(timeout=120)
            took_s = time.monotonic() - start
            codes.append(process.returncode)
            self.assertIn(process.returncode, (0, 75), errors)
            if codes[-1] == 75:
                self.assertIn("stopped before the time limit", errors)
                self.assertGreater(took_s, 0.9 * limit_s - 1, errors)
            text = (output / "run.yaml").read_text()
            generated += int(re.search(r"^tokens:\n  prompt: \d+\n  generation: (\d+)$", text, re.MULTILINE)[1])
        self.assertIn(75, codes)
        self.assertEqual(generated, 1500 * 200)
        self.assertEqual((output / "output.jsonl").read_bytes(), (whole / "output.jsonl").read_bytes())

    def test_rank_that_stands_still(self):
        """The job ends in seconds and says which rank waits for what; the same command goes on."""
        inputs = self.write("in.jsonl", rows(240, 160))
        whole, output = self.dir / "whole", self.dir / "out"
        self.finish(inputs, whole, 2, ("-tp", "2"))
        process = self.start("-tp", "2", "--stall-seconds", "3", ranks=2, inputs=inputs, output=output)
        self.wait_for_rows(process, output)
        begin = time.monotonic()
        subprocess.run(["kill", "-STOP", str(children(process.pid)[1])], check=True)
        _, errors = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, 30)
        self.assertEqual(process.returncode, 4, errors)
        self.assertRegex(errors, r"rank 0 on \S+: step \d+ for [0-9.]+ s, waiting for (exchange|all_gather) \d+, [1-9]\d* rows in flight")
        self.assertRegex(errors, r"rank 1 on \S+: .*, last heard [3-9]\.\d s ago")
        self.finish(inputs, output, 2, ("-tp", "2"))
        self.assertEqual((output / "output.jsonl").read_bytes(), (whole / "output.jsonl").read_bytes())

    def test_files_that_do_not_answer(self):
        """While the model is copied or loaded, rows are indexed or merged: the job ends in seconds and says what each rank does."""
        inputs, output = self.write("in.jsonl", rows(240, 160)), self.dir / "out"
        stage = ("--stage-dir", self.dir / "stage")
        for path, at, what, flags in ((".safetensors", 1, "copying the model, chunk 0", stage),
                                      (".safetensors", 1, "reading the model, part 0", ()),
                                      (".safetensors", 2, "loading weights, chunk 0", ()),
                                      ("/in.jsonl", 3, "indexing, stretch 0", ()),
                                      ("/journal/parts", 1, "merging from row 0", ())):
            with self.subTest(what):
                env = harness.environment(LD_PRELOAD=os.environ["TOKENMILL_FAULTS"], TOKENMILL_FAULT_PATH=path,
                                          TOKENMILL_FAULT=f"hang:{at}:0")
                begin = time.monotonic()
                process = self.start("--stall-seconds", "3", *flags, ranks=2, inputs=inputs, output=output, env=env)
                _, errors = process.communicate(timeout=60)
                self.assertLess(time.monotonic() - begin, 40)
                self.assertEqual(process.returncode, 4, errors)
                self.assertRegex(errors, rf"ranks? 0(-1)? on \S+: {what} for [0-9.]+ s, 0 rows in flight")
                self.assertRegex(errors, rf"error\[mpi\] rank \d of 2 on \S+ makes no progress \({what.split(' 0')[0]}")
        self.finish(inputs, output, 2)

    def test_directory_in_use(self):
        """A second start is refused before it loads the model, by the process that it names; killed, that one is replaced at
        once."""
        inputs, output = self.write("in.jsonl", rows(6000, 200)), self.dir / "out"
        first = self.start(ranks=2, inputs=inputs, output=output)
        self.wait_for_rows(first, output)
        for flags in ((), ("--restart",)):
            second = self.start(*flags, ranks=2, inputs=inputs, output=output)
            _, errors = second.communicate(timeout=60)
            self.assertEqual(second.returncode, 2, errors)
            self.assertIn(f"{output} is in use: run 0 (", errors)
            self.assertIn(f"pid {children(first.pid)[0]}, started ", errors)
            self.assertNotIn("parameters", errors)
        self.assertIsNone(first.poll(), "too few rows")
        living = children(first.pid)
        first.kill()
        for pid in living:  # they would notice in their own time that mpiexec is gone
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        first.communicate(timeout=60)
        third = self.start("--max-seconds", "3", ranks=2, inputs=inputs, output=output)
        _, errors = third.communicate(timeout=120)
        self.assertEqual(third.returncode, 75, errors)
        self.assertIn("continuing: ", errors)
        self.assertNotIn("taking over", errors)

    def test_refusals(self):
        inputs = self.write("in.jsonl", rows(2, 2))
        for flags, text in ((("--deadline", "1000000000"), "--deadline 1000000000 was "),
                            (("--max-seconds", "0"), "--max-seconds is 0")):
            with self.subTest(flags):
                process = self.start(*flags, ranks=0, inputs=inputs, output=self.dir / "out")
                _, errors = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 2)
                self.assertIn(text, errors)


if __name__ == "__main__":
    unittest.main()
