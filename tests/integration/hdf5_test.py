"""HDF5 files written and read as users do, with h5py and h5dump: rows in, results out."""
import fcntl
import json
import os
import subprocess
import sys
import unittest

if os.environ.get("TOKENMILL_H5PY") is None and sys.executable != "/usr/bin/python3":
    try:
        import h5py
    except ImportError:  # Debian's python3-h5py belongs to Debian's Python, whichever comes first in PATH
        os.execve("/usr/bin/python3", ["/usr/bin/python3", *sys.argv], os.environ | {"TOKENMILL_H5PY": "debian"})
import h5py
import numpy as np

from harness import DATA, TINY, Case, environment, tokenmill

FAST = ["--max-tokens", "3", "--temperature", "0"]
PROMPTS = ["The Sun is", "a \"quoted\" \\ line\n", "na\u00efve \u2603", "", "one two three"]
IDS = ["a", "b\u00e9", "c\"", "d", "e"]


class Input(Case):
    def file(self, name, **datasets):
        path = self.dir / name
        with h5py.File(path, "w") as file:
            for key, value in datasets.items():
                if isinstance(value, dict):
                    file.create_dataset(key, **value)
                else:
                    file[key] = value
        return path

    def h5(self, path, dataset, *flags, **options):
        return self.job(f"{path}:/{dataset}", *FAST, *flags, **options)

    def expected(self, rows, path, dataset):
        """What the same rows give as JSONL, with the place that an error's message names."""
        result = self.job(rows, *FAST, expect=3)
        return result.bytes.replace(f"in{self.runs}.jsonl:".encode(), f"{path}:/{dataset}:".encode())

    def same_rows(self, bytes_, expected):
        clean = lambda text: text.replace(str(self.dir).encode() + b"/", b"")
        self.assertEqual(clean(bytes_), clean(expected))

    def test_strings_are_the_rows_that_jsonl_gives(self):
        text = h5py.string_dtype()
        path = self.file("in.h5", ids={"data": IDS, "dtype": text}, vlen={"data": PROMPTS, "dtype": text},
                         packed={"data": PROMPTS, "dtype": text, "chunks": (2,), "compression": "gzip"},
                         fixed={"data": np.array([prompt.encode() for prompt in PROMPTS]), "chunks": (3,),
                                "compression": "gzip", "shuffle": True, "fletcher32": True},
                         ascii={"data": [b"x", b"yy"], "dtype": h5py.string_dtype("ascii")})
        rows = [{"id": id, "prompt": prompt} for id, prompt in zip(IDS, PROMPTS)]
        for dataset in ("vlen", "packed", "fixed"):
            for ranks in (0, 4) if dataset == "vlen" else (0,):
                result = self.h5(path, dataset, "--input-ids", "/ids", expect=3, ranks=ranks)
                self.same_rows(result.bytes, self.expected(rows, path, dataset))
        self.assertEqual([row["id"] for row in self.h5(path, "ascii").rows], [0, 1])

    def test_ragged_token_ids(self):
        prompts = [[5, 6, 7], [], [300, 2], list(range(3, 40))]
        ids = [1, 2**64 - 1, 3, 4]
        path = self.file("in.h5", **{"tok/values": np.array(sum(prompts, []), "i4"), "ids": np.array(ids, "u8"),
                                     "tok/offsets": np.cumsum([0] + [len(prompt) for prompt in prompts])})
        rows = [{"id": id, "prompt_token_ids": prompt} for id, prompt in zip(ids, prompts)]
        result = self.h5(path, "tok", "--input-ids", "ids", expect=3)
        self.same_rows(result.bytes, self.expected(rows, path, "tok"))

    def test_several_files_and_jsonl_together(self):
        for name in ("p1.h5", "p2.h5"):
            self.file(name, texts=PROMPTS[:3], ids=[f"{name}-{i}" for i in range(3)])
        lines = self.write("more.jsonl", [{"id": "last", "prompt": "x"}])
        output = self.dir / "out"
        result = tokenmill("run", "--model", os.environ["TOKENMILL_TEST_DATA"] + "/models/tiny-llama", "--output",
                           output, "--input", f"{self.dir}/p*.h5:/texts", lines, "--input-ids", "/ids", *FAST)
        self.assertEqual(result.code, 0, result.stderr)
        result.output = output
        self.assertEqual([row["id"] for row in result.rows],
                         [f"p{n}.h5-{i}" for n in (1, 2) for i in range(3)] + ["last"])

    def test_what_is_wrong_is_named(self):
        path = self.file("in.h5", floats=np.zeros(3), texts=PROMPTS, short=["a"], square=np.zeros((2, 2), "i4"),
                         packed={"data": np.array([b"a", b"b"])},
                         **{"bad/values": np.arange(10), "bad/offsets": np.array([0, 5, 3, 10])})
        with h5py.File(path, "a") as file:  # a filter that this library lacks, as h5py would have left it
            properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            properties.set_chunk((2,))
            properties.set_filter(32004, h5py.h5z.FLAG_OPTIONAL, (0,))
            h5py.h5d.create(file.id, b"lz4", h5py.h5t.py_create(np.dtype("S4")), h5py.h5s.create_simple((2,)),
                            properties)
        cut = self.write("cut.h5", path.read_bytes()[:-900])
        for dataset, flags, code, text in (
                ("floats", [], 2, r"in\.h5:/floats: holds floating-point numbers"),
                ("nothing", [], 2, r"in\.h5:/nothing: cannot be opened: .* the file has /bad \(group\), /floats"),
                ("square", [], 2, r"/square: has 2 dimensions; it must have one"),
                ("texts", ["--input-ids", "/short"], 2, r"/short: has 1 ids, and .*/texts has 5 rows"),
                ("lz4", [], 2, r"/lz4: is packed with filter 32004 \(.*\), which this HDF5 library does not have"),
                ("bad", [], 4, r"/bad/offsets: number 2 is 3; offsets must not descend")):
            self.assertRegex(self.h5(path, dataset, *flags, expect=code).stderr, text)
        self.assertRegex(self.h5(cut, "texts", expect=4).stderr, r"cut\.h5: this HDF5 file is damaged or cut off")
        self.assertRegex(self.job(path, expect=2).stderr, r"in\.h5: is an HDF5 file; name what in it holds the prompts")
        rows = self.write("rows.jsonl", [{"prompt": "x"}])
        self.assertRegex(self.h5(rows, "x", expect=2).stderr, r"rows\.jsonl: is not an HDF5 file")
        self.assertRegex(self.job(rows, "--input-ids", "/x", expect=2).stderr, r"--input-ids /x names ids in HDF5")

    def test_a_locked_file_is_one_message(self):
        path = self.file("in.h5", texts=PROMPTS[:2])
        with open(path, "rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            stderr = self.h5(path, "texts", expect=4, ranks=4).stderr
            self.assertEqual(stderr.count("HDF5_USE_FILE_LOCKING=FALSE"), 1, stderr)
            self.assertRegex(stderr, r"in\.h5: another process holds this HDF5 file locked")
            self.assertNotIn("HDF5-DIAG", stderr)
            free = self.h5(path, "texts", ranks=4, env=environment(HDF5_USE_FILE_LOCKING="FALSE"))
        self.assertEqual(len(free.rows), 2)
        self.assertEqual(self.h5(path, "texts", ranks=4).bytes, free.bytes)


def with_nul(group, name):
    """Texts of a column, U+0000 put back."""
    texts = list(group[name].asstr()[:])
    if f"{name}_nul" in group:
        for entry, character in group[f"{name}_nul"][:].reshape(-1, 2):
            assert texts[entry][character] == "\ufffd"
            texts[entry] = texts[entry][:character] + "\0" + texts[entry][character + 1:]
    return texts


class Output(Case):
    def check_scores(self, group, entry, expected, first=0):
        """expected: native logprobs of one entry, as JSONL holds them; first: of its positions."""
        begin, end = group["offsets"][entry:entry + 2]
        found = list(zip(group["positions"][begin:end], group["ids"][begin:end], group["ranks"][begin:end],
                         group["values"][begin:end]))
        wanted = [(first + i, score["id"], score["rank"], np.float32(score["logprob"]))
                  for i, position in enumerate(expected) for score in [position, *position.get("top", [])]]
        self.assertEqual(found, wanted)

    def check_equal(self, result):
        """Every row of output.h5 says what output.jsonl says."""
        with h5py.File(result.output / "output.h5") as file:
            rows, samples = file["rows"], file["samples"]
            ids, text = with_nul(rows, "id"), with_nul(samples, "text")
            stop_reason = with_nul(samples, "stop_reason")
            self.assertEqual(len(ids), len(result.rows))
            entry = 0
            for number, row in enumerate(result.rows):
                kind = int(rows["id_kind"][number])
                self.assertEqual(ids[number] if kind == 1 else int(ids[number]), row["id"])
                self.assertEqual(rows["row"][number], row["row"])
                error = row["error"] or {"code": "", "message": "", "field": ""}
                self.assertEqual([rows[f"error_{key}"].asstr()[number] for key in ("code", "message", "field")],
                                 [error["code"], error["message"], error["field"] or ""])
                usage = row["usage"] or {"prompt_tokens": 0, "completion_tokens": 0}
                self.assertEqual({key: rows[key][number] for key in usage}, usage)
                self.assertEqual((rows["first_sample"][number], rows["num_samples"][number]),
                                 (entry, len(row["outputs"])))
                if "prompt_logprobs" in row:
                    self.check_scores(rows["prompt_logprobs"], number, row["prompt_logprobs"][1:], first=1)
                for output in row["outputs"]:
                    self.assertEqual((samples["row"][entry], samples["index"][entry], text[entry],
                                      samples["finish_reason"].asstr()[entry], samples["cumulative_logprob"][entry]),
                                     (number, output["index"], output["text"], output["finish_reason"],
                                      output["cumulative_logprob"]))
                    reason, token = output["stop_reason"], samples["stop_token_id"][entry]
                    self.assertEqual(stop_reason[entry], "" if reason is None else str(reason))
                    self.assertEqual(token, reason if isinstance(reason, int) else -1)
                    begin, end = samples["token_ids/offsets"][entry:entry + 2]
                    self.assertEqual(list(samples["token_ids/values"][begin:end]), output.get("token_ids", []))
                    self.check_scores(samples["logprobs"], entry, output.get("logprobs", []))
                    entry += 1
            self.assertEqual(len(text), entry)
            for path in ("samples/token_ids", "samples/logprobs"):
                self.assertEqual(file[path]["offsets"][-1], len(file[path]["values"]))

    ROWS = [{"id": "plain", "prompt": "The Sun is"},
            {"id": "n", "prompt": "one two", "n": 3, "temperature": 1, "seed": 5, "return_token_ids": True, "logprobs": 2},
            {"id": 18446744073709551617, "prompt": "x", "temperature": 9},
            {"id": "0123", "prompt": "caf\u00e9", "prompt_logprobs": 1, "max_tokens": 2},
            {"id": "zero\0id", "prompt": "left\0right", "trace_decode_token_ids": [65, 0, 66, 0], "max_tokens": 4},
            {"id": 4, "prompt": "a b", "max_tokens": 9, "stop_token_ids": [32, 262], "logprobs": 0},
            {"id": 5, "prompt": "x", "max_tokens": 0, "prompt_logprobs": 0},
            {"id": "last", "prompt": ""}]

    def test_tables_say_what_the_lines_say(self):
        flags = [*FAST, "--output-format", "jsonl,hdf5"]
        result = self.job(self.ROWS, *flags, expect=3)
        self.check_equal(result)
        again = self.job(self.dir / "in1.jsonl", *flags, "--max-num-seqs", "2", ranks=2, expect=3)
        first = (result.output / "output.h5").read_bytes()
        self.assertEqual((again.output / "output.h5").read_bytes(), first, "equal results, equal bytes")
        with h5py.File(result.output / "output.h5") as file:
            self.assertEqual((file.attrs["format"], file.attrs["partial"]), ("tokenmill results 1", "false"))
            for path in ("rows/first_sample", "samples/text", "samples/token_ids/values", "samples/logprobs/values"):
                dataset = file[path]
                self.assertTrue(dataset.chunks and dataset.shuffle and dataset.compression == "gzip", path)
                self.assertTrue(dataset.attrs["about"], path)

    def test_many_rows_fill_many_chunks(self):
        rows = [{"id": number, "prompt": f"row {number}", "max_tokens": 1, "return_token_ids": True}
                for number in range(9000)]
        result = self.job(rows, "--temperature", "0", "--output-format", "jsonl", "hdf5", ranks=2)
        with h5py.File(result.output / "output.h5") as file:
            self.assertEqual(list(file["samples/text"].asstr()[:]), [row["outputs"][0]["text"] for row in result.rows])
            self.assertEqual(list(file["rows/id"].asstr()[:]), [str(number) for number in range(9000)])
            values = file["samples/token_ids/values"][:]
            self.assertEqual(list(values), [row["outputs"][0]["token_ids"][0] for row in result.rows])

    def test_openai_answers(self):
        def row(number, url, **body):
            return {"custom_id": f"c{number}", "method": "POST", "url": url, "body": {"model": "m", **body}}
        chat, text = "/v1/chat/completions", "/v1/completions"
        rows = [row(0, text, prompt="The Sun", logprobs=2, return_token_ids=True, n=2, temperature=1, seed=3),
                row(1, text, prompt="x", temperature=9),
                row(2, text, prompt="one", prompt_logprobs=1),
                row(3, chat, messages=[{"role": "user", "content": "hi"}], logprobs=True, top_logprobs=2,
                    return_tokens_as_token_ids=True)]
        model = os.environ["TOKENMILL_TEST_DATA"] + "/models/tiny-llama3"
        result = self.job(rows, *FAST, "--output-format", "jsonl,hdf5", model=model, expect=3)
        with h5py.File(result.output / "output.h5") as file:
            table, samples = file["rows"], file["samples"]
            self.assertEqual(list(table["id"].asstr()[:]), ["c0", "c1", "c2", "c3"])
            bodies = [row["response"]["body"] for row in result.rows]
            self.assertEqual(list(table["error_message"].asstr()[:]),
                             [body.get("error", {}).get("message", "") for body in bodies])
            choices = [choice for body in bodies for choice in body.get("choices", [])]
            self.assertEqual(list(samples["text"].asstr()[:]),
                             [choice["text"] if "text" in choice else choice["message"]["content"] for choice in choices])
            self.assertEqual(list(table["num_samples"]), [len(body.get("choices", [])) for body in bodies])
            scores = samples["logprobs"]
            for entry, choice in enumerate(choices[:2]):
                begin, end = scores["offsets"][entry:entry + 2]
                own = np.flatnonzero(np.diff(scores["positions"][begin:end], prepend=-1)) + begin
                self.assertEqual([scores["values"][at] for at in own],
                                 [np.float32(value) for value in choice["logprobs"]["token_logprobs"]])
                self.assertEqual([scores["ids"][at] for at in own], choice["token_ids"])
            last = scores["offsets"][len(choices) - 1]
            content = choices[-1]["logprobs"]["content"]
            self.assertEqual(f"token_id:{scores['ids'][last]}", content[0]["token"])

    def test_hdf5_alone_and_h5dump_reads_it(self):
        result = self.job(self.ROWS, *FAST, "--output-format", "hdf5", expect=3)
        self.assertFalse((result.output / "output.jsonl").exists())
        dump = subprocess.run(["h5dump", "-d", "/samples/text", result.output / "output.h5"], capture_output=True,
                              text=True, check=False)
        self.assertEqual(dump.returncode, 0, dump.stderr)
        self.assertIn("H5T_CSET_UTF8", dump.stdout)
        everything = subprocess.run(["h5dump", result.output / "output.h5"], capture_output=True, check=False)
        self.assertEqual(everything.returncode, 0, everything.stderr)
        self.assertIn("hdf5", (result.output / "run.yaml").read_text())

    def test_a_job_without_rows(self):
        result = self.job(self.write("none.jsonl", b""), "--output-format", "jsonl,hdf5")
        with h5py.File(result.output / "output.h5") as file:
            self.assertEqual((len(file["rows/id"]), list(file["samples/token_ids/offsets"])), (0, [0]))

    def test_results_are_prompts_of_the_next_job(self):
        flags = [*FAST, "--output-format", "hdf5"]
        first = self.job([{"prompt": "The Sun", "return_token_ids": True}, {"prompt": "y", "return_token_ids": True}], *flags)
        path = first.output / "output.h5"
        second = self.job(f"{path}:/samples/token_ids", *FAST, "--input-ids", "/samples/row")
        with h5py.File(path) as file:
            lengths = list(np.diff(file["samples/token_ids/offsets"][:]))
        self.assertEqual([row["usage"]["prompt_tokens"] for row in second.rows], lengths)

    def test_hidden_states(self):
        """Rows of all kinds: transformers' values, NaN for an error, and the same bytes in any layout and batch."""
        golden = json.loads((DATA / "golden" / "hidden_states.json").read_text())["cases"]
        cases = [case for case in golden if case["model"] == "tiny-llama"]
        rows = [{"id": case["name"], "prompt_token_ids": case["prompt_ids"], "max_tokens": 1 + number % 3}
                for number, case in enumerate(cases)]
        rows[2] |= {"n": 2, "temperature": 1, "seed": 3}
        rows += [{"id": "bad", "prompt": 7}, {"id": "text", "prompt": "The Sun is", "prompt_logprobs": 0}, rows[1]]
        path = self.write("rows.jsonl", rows)
        flags = ["--temperature", "0", "--dtype", "float", "--output-format", "jsonl,hdf5", "--max-row-errors", "1",
                 "--tp-invariant", "2"]
        plain = self.job(path, *flags)
        with h5py.File(plain.output / "output.h5") as file:
            self.assertNotIn("hidden_states", file)
        for which in ("last", "mean"):
            first = None
            for ranks, layout in ((0, []), (2, ["--max-num-seqs", "2", "--dedup", "true"]),
                                  (4, ["-pp", "2", "-tp", "2", "--max-num-batched-tokens", "256"]),
                                  (0, ["--max-num-batched-tokens", "7", "--max-num-seqs", "3"])):
                result = self.job(path, *flags, *layout, "--hidden-states", which, ranks=ranks)
                self.assertEqual(result.bytes, plain.bytes)
                first = first or result
                self.assertEqual((result.output / "output.h5").read_bytes(), (first.output / "output.h5").read_bytes())
            with h5py.File(first.output / "output.h5") as file:
                self.assertEqual(file.attrs["hidden_states"], which)
                states = file["hidden_states"]
                self.assertEqual((states.shape, states.dtype), ((len(rows), len(cases[0]["last"])), np.float32))
                self.assertTrue(states.chunks and states.shuffle and states.compression == "gzip")
                self.assertIn("final norm", states.attrs["about"])
                np.testing.assert_allclose(states[:len(cases)], [case[which] for case in cases], rtol=2e-5, atol=2e-5)
                self.assertTrue(np.isnan(states[len(cases)]).all(), "the row is an error")
                np.testing.assert_array_equal(states[len(rows) - 1], states[1])
                self.assertTrue(np.isfinite(states[len(rows) - 2]).all())

    def test_hidden_states_alone(self):
        rows = [{"prompt": "The Sun is"}, {"prompt": "x " * 50}, {"prompt": "The Sun is", "max_tokens": 2}]
        flags = ["--output-format", "hdf5", "--hidden-states", "mean", "--dtype", "bfloat16"]
        result = self.job(rows, "--max-tokens", "0", *flags)
        with h5py.File(result.output / "output.h5") as file:
            states = file["hidden_states"][:]
            self.assertEqual(list(file["rows/completion_tokens"]), [0, 0, 2])
            np.testing.assert_array_equal(states[0], states[2])
            self.assertTrue((states[0] != states[1]).any())
        self.assertRegex(self.job(rows, "--hidden-states", "last", expect=2).stderr,
                         r"--hidden-states last needs --output-format hdf5 or jsonl,hdf5")
        self.assertRegex(self.job(rows, *FAST, "--hidden-states", "first", expect=2).stderr,
                         r"--hidden-states is first; it must be one of none, last, mean")
        empty = self.job(self.write("none.jsonl", b""), *flags)
        with h5py.File(empty.output / "output.h5") as file:
            self.assertEqual(file["hidden_states"].shape, (0, 64))

    def tables(self, path):
        """All that a file says, wherever its values lie."""
        found = {}
        with h5py.File(path) as file:
            def visit(name, item):
                if isinstance(item, h5py.Dataset):
                    values = item.asstr()[:] if item.dtype.kind == "O" else item[:]
                    found[name] = (item.dtype, item.attrs["about"], values.tolist())
            file.visititems(visit)
            return repr(found), dict(file.attrs)

    def test_parts_say_what_one_file_says(self):
        rows = [*self.ROWS[:5], {"id": "more", "prompt": "x y z"}, *self.ROWS[5:], {"id": "nul\0", "prompt": "a\0b"}]
        path = self.write("rows.jsonl", rows)
        flags = [*FAST, "--output-format", "jsonl,hdf5", "--hidden-states", "last"]
        merged = self.job(path, *flags, expect=3)
        self.assertFalse(list(merged.output.glob("output.parts.*")))
        expected = self.tables(merged.output / "output.h5")
        self.assertIn("id_nul", expected[0])
        for ranks in (1, 3, 4):
            result = self.job(path, *flags, "--output-layout", "parts", ranks=ranks, expect=3)
            moved = self.dir / f"moved{ranks}"
            result.output.rename(moved)
            self.assertEqual(self.tables(moved / "output.h5"), expected)
            self.assertFalse((moved / "output.jsonl").exists())
            [parts] = moved.glob("output.parts.*")
            self.assertEqual([file.name for file in sorted(parts.iterdir())],
                             [f"{rank:05}.{kind}" for rank in range(ranks) for kind in ("h5", "jsonl")])
            lines = b"".join(file.read_bytes() for file in sorted(parts.glob("*.jsonl")))
            self.assertEqual(lines, merged.bytes)
            dump = subprocess.run(["h5dump", moved / "output.h5"], capture_output=True, text=True, check=False, cwd="/")
            self.assertEqual(dump.returncode, 0, dump.stderr)
            self.assertIn('"plain"', dump.stdout)
            with h5py.File(moved / "output.h5") as file:
                self.assertTrue(file["samples/text"].is_virtual and file["hidden_states"].is_virtual)
        self.assertRegex(self.job(rows, "--output-layout", "parts", expect=2).stderr,
                         r"--output-layout parts needs --output-format hdf5 or jsonl,hdf5")
        empty = self.job(self.write("none.jsonl", b""), *flags, "--output-layout", "parts", ranks=2)
        with h5py.File(empty.output / "output.h5") as file:
            self.assertEqual((len(file["rows/id"]), list(file["samples/token_ids/offsets"]), file["hidden_states"].shape),
                             (0, [0], (0, 64)))

    def test_merged_tables_say_their_rows_and_whether_some_are_left_out(self):
        """Ids alone would not: they may be alike."""
        path = self.write("rows.jsonl", [{"id": "same", "prompt": f"{i} mills"} for i in range(9)])
        job = self.dir / "job"

        def run(shard, *flags, expect=0, env=None):
            result = tokenmill("run", "--model", TINY, "--input", path, "--output", job, *FAST, "--output-format", "hdf5",
                               "--date", "2026-11-29", "--shard", f"{shard}/3", *flags, env=env)
            self.assertEqual(result.code, expect, result.stderr)

        def merged(*flags):
            result = tokenmill("merge", job, *flags, "--output", self.dir / "merged.h5")
            self.assertEqual(result.code, 0, result.stderr)
            with h5py.File(self.dir / "merged.h5") as file:
                return list(file["rows/row"]), file.attrs["partial"]

        run(0)
        run(2)
        self.assertEqual(merged("--partial"), ([0, 1, 2, 6, 7, 8], "true"))
        run(1, "--commit-seconds", 0, "--max-num-seqs", 1, expect=-9, env=environment(
            LD_PRELOAD=os.environ["TOKENMILL_FAULTS"], TOKENMILL_FAULT_PATH="/shard-00001-of-00003/journal/ledger", TOKENMILL_FAULT="kill:5"))
        some, partial = merged("--partial")
        self.assertEqual((some[:3], some[-3:], partial), ([0, 1, 2], [6, 7, 8], "true"))
        self.assertLess(len(some), 9)
        run(1)
        for flags in ((), ("--partial",)):
            self.assertEqual(merged(*flags), (list(range(9)), "false"))

    def test_parts_of_a_killed_merge(self):
        """The run that merges anew dies at its calls; output.h5 shows the old parts or the new ones, and the next run ends it."""
        path = self.write("rows.jsonl", [{"id": i, "prompt": f"row {i}"} for i in range(9)])
        output = self.dir / "out"
        command = ["run", "--model", TINY, "--input", path, "--output", output, *FAST, "--output-format", "jsonl,hdf5",
                   "--output-layout", "parts"]
        first = tokenmill(*command, ranks=2)
        self.assertEqual(first.code, 0, first.stderr)
        expected = self.tables(output / "output.h5")
        log = self.dir / "log"
        faults = {"LD_PRELOAD": os.environ["TOKENMILL_FAULTS"], "TOKENMILL_FAULT_PATH": str(output)}
        self.assertEqual(tokenmill(*command, ranks=2, env=environment(TOKENMILL_FAULT_LOG=str(log), **faults)).code, 0)
        calls = [line.split()[:3] for line in log.read_text().splitlines() if line.startswith("0 ")]
        on_tables = [number for number, (_, _, file) in enumerate(calls, 1) if "/output." in file]
        renamed = [number for number, (_, name, file) in enumerate(calls, 1) if name == "rename" and file.endswith("/output.h5")]
        for at in {on_tables[0], on_tables[len(on_tables) // 2], renamed[0], renamed[0] + 1, on_tables[-1]}:
            with self.subTest(call=calls[at - 1]):
                killed = tokenmill(*command, ranks=2, env=environment(TOKENMILL_FAULT=f"kill:{at}:0", **faults))
                self.assertNotEqual(killed.code, 0)
                self.assertEqual(self.tables(output / "output.h5"), expected)
                again = tokenmill(*command, ranks=3)
                self.assertEqual(again.code, 0, again.stderr)
                self.assertEqual(self.tables(output / "output.h5"), expected)
                self.assertEqual(len(list(output.glob("output.parts.*"))), 1)
        merged = tokenmill(*command[:-1], "merged", ranks=2)
        self.assertEqual(merged.code, 0, merged.stderr)
        self.assertEqual((self.tables(output / "output.h5"), list(output.glob("output.parts.*"))), (expected, []))
        self.assertEqual(tokenmill(*command, "--restart", ranks=2).code, 0)

    def test_a_file_that_crashes_the_library_is_named(self):
        """A byte of a string's heap index is wrong: HDF5 1.10 follows it anywhere."""
        damaged = f"{DATA / 'hdf5' / 'damaged_heap_index.h5'}:/text"
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                result = tokenmill("run", "--model", TINY, "--input", damaged, "--output", self.dir / "damaged", ranks=ranks)
                self.assertEqual(result.code, 4, result.stderr)
                self.assertIn(damaged, result.stderr)
                self.assertNotIn("[ 0]", result.stderr)  # the frames of a stack

    def test_unknown_formats_are_refused(self):
        for value in ("csv", "jsonl,", "jsonl,json"):
            self.assertRegex(self.job(self.ROWS, "--output-format", value, expect=2).stderr,
                             r"--output-format is .*; it must be one of jsonl, hdf5")


if __name__ == "__main__":
    unittest.main()
