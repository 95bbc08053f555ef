"""One model over many ranks: tensor-, pipeline- and data-parallel layouts give the tokens of one rank, and its bytes where
that is promised; what they report; how they end. A pairwise cover of the layouts up to 8 ranks; TOKENMILL_TEST_FULL=1 runs
all of them up to 32."""
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import time
import unittest

from harness import DATA, MPIEXEC, TOKENMILL, Case, environment, tokenmill

# name -> tensor-parallel sizes that its heads allow; 24 query heads over 8 and 3 key/value heads, 2 layers or more
MODELS = {"tiny-spread8": (1, 2, 4, 8, 24), "tiny-spread3": (1, 3)}
FULL = os.environ.get("TOKENMILL_TEST_FULL") == "1"
MAX_RANKS = 32 if FULL else 8
WORDS = "the river runs past an old mill where seven people grind corn and tell stories about Paris 123 ...".split()


def layouts(model, max_ranks):
    """(tp, pp, dp) of at most so many ranks."""
    return [layout for layout in itertools.product(MODELS[model], (1, 2, 3, 4), (1, 2, 4))
            if layout[0] * layout[1] * layout[2] <= max_ranks]


def pairs(layout):
    return {((a, layout[a]), (b, layout[b])) for a, b in itertools.combinations(range(3), 2)}


def pairwise_cover(candidates):
    """Layouts that hold every pair of sizes that occurs together, chosen greedily, few ranks first."""
    missing = set().union(*map(pairs, candidates))
    cover = []
    while missing:
        best = max(candidates, key=lambda layout: (len(pairs(layout) & missing), -layout[0] * layout[1] * layout[2]))
        cover.append(best)
        missing -= pairs(best)
    return cover


def some_rows():
    """Greedy and sampled rows of all lengths, with samples, penalties, scores and shared beginnings."""
    dice = random.Random(5)
    rows = []
    for number in range(48):
        prompt = f"{number % 6}: " + " ".join(WORDS[:8 + number % 6]) + f" / {dice.choice(WORDS)} " * (number % 9)
        row = {"id": number, "prompt": prompt, "max_tokens": dice.randint(4, 24), "ignore_eos": number % 3 != 0,
               "temperature": 0.8 if number % 2 else 0, "return_token_ids": True}
        if number % 4 == 1:
            row |= {"seed": number, "top_k": 20, "top_p": 0.9}
        if number % 8 == 3:
            row |= {"n": 2}
        if number % 5 == 2:
            row |= {"repetition_penalty": 1.2, "logprobs": 2}
        if number % 7 == 0:
            row |= {"prompt_logprobs": 1}
        rows.append(row)
    return rows


def scored_rows():
    """48 rows that ask for every kind of score, so that many of a step need whole rows of logits."""
    rows = []
    for number in range(48):
        ids = [3 + (number * 17 + i * i) % 400 for i in range(4 + number % 9)]
        row = {"id": number, "prompt_token_ids": ids, "max_tokens": 6, "ignore_eos": True, "return_token_ids": True,
               "temperature": 0.9 if number % 2 else 0, "top_p": 0.8, "seed": number}
        row |= ({"logprobs": 20, "prompt_logprobs": 5, "flat_logprobs": True},
                {"logprob_token_ids": [1, 77, 410], "prompt_logprobs": 0},
                {"prompt_logprobs": 30, "max_tokens": 0},
                {"logprobs": 1, "prompt_logprob_start": 1, "prompt_logprob_token_ids": [[5, 410]] * (len(ids) - 2)},
                {"logprobs": -1, "prompt_logprobs": -1, "max_tokens": 2})[number % 5]
        rows.append(row)
    return rows


def tokens(result, greedy_only):
    """The token ids of every sample, in the rows' order."""
    rows = some_rows()
    return [[output["token_ids"] for output in got["outputs"]] for row, got in zip(rows, result.rows)
            if not greedy_only or row["temperature"] == 0]


def with_equal_rows(model, ids):
    """Makes the rows of `ids` of a tied model's embedding, and so their logits, those of the first."""
    path = model / "model.safetensors"
    data = bytearray(path.read_bytes())
    size, = struct.unpack_from("<Q", data)
    tensor = json.loads(data[8:8 + size])["model.embed_tokens.weight"]
    begin, end = (8 + size + offset for offset in tensor["data_offsets"])
    stride = (end - begin) // tensor["shape"][0]
    rows = [begin + token * stride for token in ids]
    for at in rows[1:]:
        data[at:at + stride] = data[rows[0]:rows[0] + stride]
    path.write_bytes(data)


class Layouts(Case):
    def run_one(self, model, tp, pp, dp, *flags):
        # A pool and batches small enough that rows wait, chunks and steps in flight are many, and some rows are preempted.
        return self.job(some_rows(), "--dtype", "float", "--max-model-len", "192", "--max-num-seqs", "12", "--threads", "1",
                        "--max-num-batched-tokens", "64", "--num-gpu-blocks-override", "40", "-tp", tp, "-pp", pp,
                        *flags, ranks=tp * pp * dp, model=DATA / "models" / model)

    def test_every_layout_gives_the_tokens_of_one_rank(self):
        for model in MODELS:
            alone = self.run_one(model, 1, 1, 1)
            self.assertEqual([row["error"] for row in alone.rows], [None] * len(some_rows()))
            by_tp = {1: alone}
            candidates = [layout for layout in layouts(model, MAX_RANKS) if layout != (1, 1, 1)]
            for tp, pp, dp in candidates if FULL else pairwise_cover(candidates):
                with self.subTest(model=model, tp=tp, pp=pp, dp=dp):
                    result = self.run_one(model, tp, pp, dp)
                    self.assertEqual(tokens(result, True), tokens(alone, True))
                    # Stages and replicas do not change a bit; another tensor-parallel size rounds otherwise.
                    self.assertEqual(result.bytes, by_tp.setdefault(tp, result).bytes)

    def test_tp_invariant_gives_the_same_bytes_on_any_number_of_ranks(self):
        for model, parts, layouts_to_run in (("tiny-spread8", 8, [(1, 1, 1), (2, 1, 2), (4, 2, 1), (8, 1, 1), (2, 3, 1)]),
                                             ("tiny-spread3", 3, [(1, 1, 1), (3, 1, 1), (3, 2, 1), (1, 2, 2)])):
            results = [self.run_one(model, *layout, "--tp-invariant", parts) for layout in layouts_to_run]
            for layout, result in zip(layouts_to_run, results):
                with self.subTest(model=model, layout=layout):
                    self.assertEqual(result.bytes, results[0].bytes)

    def test_tp_invariant_gives_every_kind_of_score_the_bytes_of_one_rank(self):
        for model, parts, sizes in (("tiny-spread8", 8, (2, 4)), ("tiny-spread3", 3, (3,))):
            for dtype in ("float", "bfloat16"):
                results = [self.job(scored_rows(), "--dtype", dtype, "--max-model-len", 64, "--threads", 1, "--max-logprobs", -1,
                                    "--tp-invariant", parts, "-tp", tp, ranks=tp, model=DATA / "models" / model)
                           for tp in (1, *sizes)]
                for tp, result in zip(sizes, results[1:]):
                    with self.subTest(model=model, dtype=dtype, tp=tp):
                        self.assertEqual(result.bytes, results[0].bytes)
                first, flat = results[0].rows[4], results[0].rows[0]["outputs"][0]["logprobs"]
                vocab = json.loads((DATA / "models" / model / "config.json").read_text())["vocab_size"]
                self.assertEqual([len(at["top"]) for at in first["outputs"][0]["logprobs"]], [vocab] * 2)
                self.assertEqual([len(at["top"]) for at in first["prompt_logprobs"][1:]], [vocab] * 7)
                self.assertEqual(len(flat["start_indices"]), 6)

    def test_of_equal_logits_the_smaller_id_is_taken_whatever_ranks_hold_them(self):
        model = self.dir / "model"
        shutil.copytree(DATA / "models" / "tiny-llama", model)
        with_equal_rows(model, [5, 300, 410])  # of 411: on the first rank, one behind it, and the last
        rows = [{"prompt": "The capital of", "temperature": 0, "max_tokens": 4, "ignore_eos": True, "return_token_ids": True,
                 "logit_bias": {str(token): 100 for token in tokens}} for tokens in ([410, 300, 5], [410, 300], [5, 410])]
        for tp, pp in ((1, 1), (2, 1), (4, 1), (2, 2)):
            with self.subTest(tp=tp, pp=pp):
                result = self.job(rows, "--dtype", "float", "--threads", "1", "-tp", tp, "-pp", pp, ranks=tp * pp, model=model)
                self.assertEqual([row["outputs"][0]["token_ids"] for row in result.rows], [[5] * 4, [300] * 4, [5] * 4])

    def test_a_replica_without_rows_or_long_done_lets_its_ranks_go(self):
        one = [{"id": 0, "prompt": "x", "max_tokens": 3, "temperature": 0}]
        uneven = [{"id": i, "prompt": "x", "max_tokens": 1 if i else 180, "temperature": 0, "ignore_eos": True} for i in range(3)]
        for rows in ([], one, uneven):
            for layout in ((2, 1), (1, 2), (2, 2)):
                with self.subTest(rows=len(rows), layout=layout):
                    tp, pp = layout
                    result = self.job(rows, "-tp", tp, "-pp", pp, "-dp", 2, "--threads", "1", "--max-model-len", "192",
                                      ranks=2 * tp * pp, model=DATA / "models" / "tiny-spread8")
                    self.assertEqual(len(result.rows), len(rows))


class Reports(Case):
    def test_layout_and_transfers_add_up(self):
        config = json.loads((DATA / "models" / "tiny-spread8" / "config.json").read_text())
        hidden, layers = config["hidden_size"], config["num_hidden_layers"]
        tp, pp, dp = 2, 3, 2
        steps = self.dir / "steps.jsonl"
        result = self.job(some_rows(), "--dtype", "float", "--max-model-len", "192", "--threads", "1", "-tp", tp, "-pp", pp,
                          "--num-gpu-blocks-override", 64, "--iteration-log", steps, ranks=tp * pp * dp,
                          model=DATA / "models" / "tiny-spread8")
        self.assertIn("12 ranks on 1 node, 2 replicas of 3 stages of 2 ranks", result.stderr)
        text = (result.output / "run.yaml").read_text()
        ranks = [dict(re.findall(r"(\w+): ([-0-9.e]+)", line)) for line in re.findall(r"- {rank: .*}", text)]
        self.assertEqual(len(ranks), tp * pp * dp)
        places = sorted((int(r["dp_rank"]), int(r["pp_rank"]), int(r["tp_rank"])) for r in ranks)
        self.assertEqual(places, sorted(itertools.product(range(dp), range(pp), range(tp))))
        layer_bytes = {int(rank["kv_bytes"]) / int(rank["num_layers"]) for rank in ranks}  # as many heads on each
        self.assertEqual(len(layer_bytes), 1)
        self.assertTrue(all(float(rank["compute_s"]) > 0 for rank in ranks))
        for replica, share in itertools.product(range(dp), range(tp)):
            stages = [int(r["num_layers"]) for r in ranks if (int(r["dp_rank"]), int(r["tp_rank"])) == (replica, share)]
            self.assertEqual(sum(stages), layers)
        tokens = num_steps = 0
        for replica in range(dp):
            for line in (self.dir / f"steps.jsonl.{replica}").read_text().splitlines():
                step = json.loads(line)
                tokens += step["tokens"]
                num_steps += 1
                self.assertGreater(step["communication_s"], 0)
        transfers = {kind: {name: float(value) for name, value in re.findall(r"(\w+): ([-0-9.e]+)", members)}
                     for kind, members in re.findall(r"(send|recv|all_gather): {(calls[^}]*)}", text)}
        # Every rank of a stage hands its copy of the residual stream on.
        self.assertEqual(transfers["send"]["sent_bytes"], tokens * hidden * 4 * (pp - 1) * tp)
        self.assertEqual(transfers["recv"]["received_bytes"], transfers["send"]["sent_bytes"])
        self.assertEqual(transfers["send"]["calls"], num_steps * (pp - 1) * tp)
        self.assertGreater(transfers["all_gather"]["calls"], num_steps * layers * 2 * tp)
        self.assertIn(f"step_plans: {{plans: {num_steps + dp}, ", text)  # each leader's last one says stop
        (bubble,) = result.figures("pp_bubble_fraction")
        self.assertTrue(0 < bubble < 1, bubble)


class Ends(Case):
    def start(self, *flags, ranks):
        rows = self.write("in.jsonl", [{"id": i, "prompt": "The sun", "max_tokens": 150, "temperature": 0, "ignore_eos": True}
                                       for i in range(4000)])
        run = subprocess.Popen([MPIEXEC, "-n", str(ranks), TOKENMILL, "run", "--model", str(DATA / "models" / "tiny-spread8"),
                                "--input", str(rows), "--output", str(self.dir / "o"), "--threads", "1", *map(str, flags)],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment())
        self.addCleanup(lambda: run.poll() is None and run.kill())
        ledgers = self.dir / "o" / "journal" / "ledger"
        for _ in range(600):
            if ledgers.is_dir() and sum(path.stat().st_size for path in ledgers.iterdir()) > 500:
                break
            self.assertIsNone(run.poll())
            time.sleep(0.1)
        return run

    def pids(self, run):
        """Of the ranks that mpirun has started: rank -> process."""
        found = {}
        for process in pathlib.Path("/proc").iterdir():
            try:
                if process.name.isdigit() and int((process / "stat").read_text().rpartition(")")[2].split()[1]) == run.pid:
                    variables = (process / "environ").read_bytes().split(b"\0")
                    found.update({int(v.partition(b"=")[2]): int(process.name) for v in variables
                                  if v.startswith(b"OMPI_COMM_WORLD_RANK=")})
            except OSError:
                continue
        return found

    @staticmethod
    def runs_still(pid):
        """Not when it is only waiting for its parent to look: where nobody is process 1's heir, it stays so."""
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False

    def test_a_killed_rank_ends_the_job_whatever_its_part(self):
        for killed in (0, 1, 3):  # leader, its stage's other rank, the last stage
            with self.subTest(killed=killed):
                shutil.rmtree(self.dir / "o", ignore_errors=True)
                run = self.start("-tp", 2, "-pp", 2, ranks=4)
                pids = self.pids(run)
                self.assertEqual(sorted(pids), [0, 1, 2, 3])
                began = time.monotonic()
                os.kill(pids[killed], signal.SIGKILL)
                self.assertNotEqual(run.wait(timeout=60), 0)
                self.assertLess(time.monotonic() - began, 30)
                run.stderr.close()
                self.assertFalse([pid for pid in pids.values() if self.runs_still(pid)])
                self.assertFalse((self.dir / "o" / "output.jsonl").exists())

    def test_one_rank_that_cannot_read_its_share_ends_the_job_with_its_message(self):
        model = self.dir / "model"
        shutil.copytree(DATA / "models" / "tiny-spread8", model)
        weights = model / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1000])
        rows = self.write("in.jsonl", [{"id": 1, "prompt": "x", "max_tokens": 2}])
        flags = ["run", "-tp", "2", "-pp", "2", "--input", str(rows), "--output", str(self.dir / "o"), "--model"]
        done = subprocess.run([MPIEXEC, "-n", "3", TOKENMILL, *flags, str(DATA / "models" / "tiny-spread8"), ":", "-n", "1", TOKENMILL,
                               *flags, str(model)], capture_output=True, text=True, timeout=60, env=environment(), check=False)
        lines = [line for line in done.stderr.splitlines() if line.startswith("error[")]
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertIn("rank 3 of 4", lines[0])
        self.assertIn("model.safetensors", lines[0])
        self.assertEqual(done.returncode, 4)


class Refusals(Case):
    def check_refused(self, ranks, flags, *texts, model="tiny-spread8"):
        rows = self.write("in.jsonl", [{"id": 1, "prompt": "x", "max_tokens": 2}])
        result = tokenmill("run", "--model", DATA / "models" / model, "--input", rows, "--output", self.dir / "o", *flags,
                           ranks=ranks)
        self.assertEqual(result.code, 2, result.stderr)
        lines = [line for line in result.stderr.splitlines() if line.startswith("error[")]
        self.assertEqual(len(lines), 1, result.stderr)
        for text in texts:
            self.assertIn(text, lines[0])
        self.assertFalse((self.dir / "o").exists())

    def test_layouts_that_do_not_fit_the_ranks(self):
        self.check_refused(3, ["-tp", 2], "= 2 ranks a replica, and there are 3", "start 2 or 4")
        self.check_refused(2, ["-tp", 2, "-dp", 2], "= 4 ranks, and there are 2; start 4")
        self.check_refused(0, ["-pp", 2], "and there is 1", "start 2")

    def test_layouts_that_do_not_fit_the_model(self):
        self.check_refused(5, ["-tp", 5], "--tensor-parallel-size 5 does not fit 24 query heads and 8 key/value heads",
                           "choose one of 1, 2, 4, 8, 24")
        self.check_refused(3, ["-tp", 3], "8 key/value heads")
        self.check_refused(8, ["-pp", 8], "--pipeline-parallel-size 8 is more than the")
        self.check_refused(2, ["-tp", 2, "--tp-invariant", 3], "--tp-invariant 3 does not fit")


if __name__ == "__main__":
    unittest.main(verbosity=2)
