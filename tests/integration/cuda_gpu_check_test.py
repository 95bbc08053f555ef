"""scripts/gpu_check, with an emulated device in place of the GPU and stand-ins for what only a GPU has: its own logic, from
choosing programs to the exit code."""
import argparse
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import unittest
from unittest import mock

from harness import DATA, TOKENMILL, Case, environment

ROOT = DATA.parents[1]
BUILD = pathlib.Path(TOKENMILL).parent
SCRIPT = ROOT / "scripts" / "gpu_check"
loader = importlib.machinery.SourceFileLoader("gpu_check", str(SCRIPT))
gpu_check = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
sys.modules["gpu_check"] = gpu_check  # dataclasses look it up
loader.exec_module(gpu_check)
measure, programs = gpu_check.measure, gpu_check.programs


def result(operation, shape, dtype="bfloat16", gflops=0.0, gbps=0.0):
    return {"operation": operation, "shape": shape, "dtype": dtype, "repeats": 3, "ms": 1, "median_ms": 1, "gflops": gflops,
            "compute_share": 0, "gbps": gbps, "memory_share": 0, "max_error": 0}


# What `bench kernels --output-json` writes; an emulated device would take hours for those shapes.
KERNELS = {"version": "0", "device": "x", "limits": {"threads": 1, "f32_gflops_core": 0, "f32_gflops": 5e4, "bf16_gflops": 8e5,
                                                    "read_gbps": 4000, "copy_gbps": 4000},
           "results": [result("linear", "M 16, N 64, K 32", gflops=1e4), result("linear", "M 8192, N 64, K 32", gflops=6e5),
                       result("attention_decode", "long", gbps=3600), result("attention_decode", "short", gbps=3200),
                       result("attention_decode", "f32 does not count", "float32", gbps=1),
                       result("attention_prefill", "whole", gflops=4.8e5)]}
# ncu's: two steps and a part of a model of two layers, 8 us each.
PROFILE = '==PROF== Connected\n"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n' + "".join(
    f'"{i}","{name}(int, float)","gpu__time_duration.sum","{unit}","{time}"\n'
    for i, (name, unit, time) in enumerate([("pick_kernel", "us", "900"), *([
        ("rope_and_store_kernel", "ns", "1,000"), ("gemm", "usecond", "2"), ("rope_and_store_kernel", "ns", "1,000"),
        ("gemm", "us", "2"), ("pick_kernel", "us", "2")] * 2), ("rope_and_store_kernel", "us", "1")]))
STAND_IN = """#!/bin/sh
set -e
case "$1 $2" in
"bench kernels") while [ "$1" != --output-json ]; do shift; done; cat '{kernels}' > "$2" ;;
*) exec '{real}' "$@" ;;
esac
"""
# A stand-in for compute-sanitizer lets whole runs run, and asks test programs only whether the selection is there.
SANITIZER = """#!/bin/sh
[ "$1 $3" = "--tool --error-exitcode" ] || exit 1
shift 4
case "$1" in
*tokenmill) exec "$@" ;;
*) "$@" --count | grep -q 'filters: [1-9]' ;;
esac
"""


class Whole(Case):
    """The whole script over a build tree of links to the emulated programs."""

    def setUp(self):
        super().setUp()
        self.build, self.tools, self.out = self.dir / "build", self.dir / "tools", self.dir / "out"
        self.build.mkdir()
        self.tools.mkdir()
        (self.build / "CMakeCache.txt").write_text("TOKENMILL_CUDA:STRING=emulated\n")
        for name, path in programs.find(BUILD, programs.PROGRAMS).items():
            if name != "tokenmill":
                (self.build / name).symlink_to(path)
        kernels = self.write("kernels.json", json.dumps(KERNELS))
        self.program(self.build / "tokenmill", STAND_IN.format(kernels=kernels, real=TOKENMILL))
        self.program(self.tools / "compute-sanitizer", SANITIZER)
        self.program(self.tools / "ncu", f"#!/bin/sh\ncat '{self.write('profile.csv', PROFILE)}'\n")

    def program(self, path, text):
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def check(self, *options, expect):
        variables = environment(PATH=f"{self.tools}:{os.environ['PATH']}", OUT=str(self.out))
        done = subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True, check=False,
                              env=variables, timeout=400)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout

    def report(self):
        return json.loads((self.out / "gpu_check.json").read_text())

    def test_every_step_runs_and_figures_are_held_against_the_targets(self):
        printed = self.check("--build", self.build, expect=0)
        report = self.report()
        self.assertEqual({step["status"] for step in report["steps"]}, {"passed"}, printed)
        self.assertEqual(len(report["steps"]), 14)
        self.assertIn("emulated; build tree", report["device"])
        self.assertEqual([target["is_met"] for target in report["targets"][:3]], [True, False, True])
        step = report["targets"][3]
        self.assertGreater(step["measured"], 1)  # an emulated step over 8 us
        self.assertEqual(step["wanted"], 1.1)
        for text in ("copies of device memory: 4000 GB/s", "N 64, K 32, 8192 rows: 600 TFLOP/s, 0.75 of the peak",
                     "0.800, wanted >= 0.85, missed by 0.050", "output tokens/s", "2 of 4 targets missed"):
            self.assertIn(text, printed)
            self.assertIn(text, (self.out / "gpu_check.txt").read_text())
        self.assertIn("== models\n", (self.out / "gpu_check.log").read_text())
        self.assertLessEqual(len(list(self.out.iterdir())), 8)

    def test_missed_targets_fail_a_strict_call_only(self):
        options = ("--build", self.build, "--only", "bench kernels")
        self.check(*options, expect=0)
        self.check(*options, "--strict", expect=1)

    def test_a_failed_test_and_one_without_its_device_fail_the_check(self):
        for text, why in (("echo planted; exit 3", "exit code 3: planted"),
                          ("echo 'skipping cuda: no device is visible'", "tests did without the device")):
            with self.subTest(why):
                self.program(self.build / "test_kernels", f"#!/bin/sh\n{text}\n")
                printed = self.check("--build", self.build, "--only", "operations", expect=1)
                self.assertIn(why, printed)
                self.assertIn("FAILED: operations", printed)
                self.assertEqual([step["status"] for step in self.report()["steps"]], ["failed"])

    def test_several_ranks_are_tested_where_they_are_asked_for_and_there(self):
        (self.build / programs.RANKS_PROGRAM).symlink_to(programs.find(BUILD, [programs.RANKS_PROGRAM])[programs.RANKS_PROGRAM])
        options = ("--build", self.build, "--ranks", "2", "--only", "ranks: transfers")
        self.assertRegex(self.check(*options, expect=0), r"passed +\S+ s  2 ranks: transfers")
        self.program(self.build / "tokenmill", "#!/bin/sh\necho tokenmill 0, one rank: built without MPI\n")
        self.assertRegex(self.check(*options, expect=1), r"failed +0\.0 s  2 ranks: transfers  these programs are built without MPI")

    def test_a_profiler_that_fails_costs_a_figure_and_fails_no_test(self):
        self.program(self.tools / "ncu", "#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM'; exit 1\n")
        printed = self.check("--build", self.build, "--only", "kernels of decode steps", expect=0)
        self.assertRegex(printed, r"not measured +replayed decode step .*ERR_NVGPUCTRPERM")

    def test_a_selection_of_nothing_is_a_failure(self):
        self.check("--build", self.build, "--only", "no such step", expect=1)

    def test_what_cannot_run_says_what_to_do(self):
        self.program(self.tools / "nvidia-smi", "#!/bin/sh\necho 'No devices were found'; exit 6\n")
        self.assertIn("--build build/emulated", self.check(expect=3))
        (self.build / "test_kernels").unlink()
        self.assertIn("lacks test_kernels; build these targets", self.check("--build", self.build, expect=2))

    def test_figures_have_the_names_that_the_program_writes(self):
        path = self.dir / "real.json"
        subprocess.run([TOKENMILL, "bench", "kernels", "--device", "cpu", "--filter", "parts", "--threads", "1", "--output-json",
                        path], check=True, capture_output=True)
        real = json.loads(path.read_text())
        self.assertEqual(real.keys(), KERNELS.keys())
        self.assertEqual(real["limits"].keys(), KERNELS["limits"].keys())
        self.assertEqual(real["results"][0].keys(), KERNELS["results"][0].keys())
        self.assertIn("bfloat16", {entry["dtype"] for entry in real["results"]})


class Parts(Case):
    def test_all_limits_together_are_below_eight_minutes(self):
        limits = (gpu_check.TESTS_S, gpu_check.SANITIZER_S, gpu_check.KERNELS_S, gpu_check.THROUGHPUT_S, gpu_check.DECODE_S,
                  gpu_check.PROFILE_S)
        self.assertLess(sum(limits), 8 * 60 - 5)

    def test_tools_that_are_not_there_are_named_and_are_no_failure(self):
        with mock.patch.dict(os.environ, {"OUT": str(self.dir)}), mock.patch.object(programs, "find_tool", lambda name: None):
            arguments = argparse.Namespace(only="memcheck: attention,kernels of", strict=True)
            check = gpu_check.Check(arguments, dict.fromkeys(programs.PROGRAMS, "false"), {}, "x", True)
            gpu_check.sanitizer(check)
            gpu_check.throughput(check)
            self.assertEqual([(step.status, step.detail) for step in check.steps], [
                ("not run", "there is no compute-sanitizer"), ("not run", "there is no ncu, which times kernels inside of graphs")])
            self.assertIn("not measured", check.targets[0].line())
            self.assertEqual(gpu_check.report(check, 1), 0)

    def test_a_step_that_hangs_is_ended_with_its_children(self):
        step = gpu_check.Step("hangs", ["sh", "-c", "echo begun; sleep 98765 & wait"], 0.5)
        gpu_check.run_step(step, dict(os.environ))
        self.assertEqual((step.status, step.output), ("failed", "begun\n"))
        self.assertIn("did not end within", step.detail)
        self.assertLess(step.seconds, 30)

    def test_a_step_is_what_lies_between_equal_places_of_two_steps(self):
        self.assertAlmostEqual(measure.kernels_of_a_step_s(PROFILE, 2), 8e-6)
        self.assertIsNone(measure.kernels_of_a_step_s(PROFILE, 6))
        self.assertIsNone(measure.kernels_of_a_step_s("==ERROR== no permission", 2))
        log = [json.dumps({"time_s": t, "step_s": 0.5, "sequences": n, "tokens": n}) for t, n in
               ((0, 9), (1, 2), (1.2, 2), (1.5, 2), (1.6, 2), (5, 1))]
        self.assertAlmostEqual(measure.decode_step_s(log, 2), 0.2)

    def test_a_pack_holds_programs_with_their_libraries(self):
        pack = self.dir / "pack.tar.xz"
        programs.write_pack(BUILD, ("test_kernels_emulation",), pack)
        folder, facts = programs.unpack(pack, self.dir / "unpacked")
        self.assertTrue({"bin/test_kernels_emulation", "lib/libstdc++.so.6"} <= facts["bytes"].keys())
        self.assertFalse([name for name in facts["bytes"] if programs.SYSTEM.match(pathlib.PurePath(name).name)])
        done = subprocess.run([folder / "bin" / "test_kernels_emulation", "--count"], check=True, capture_output=True, text=True)
        self.assertIn("filters: ", done.stdout)
        with mock.patch.object(os, "confstr", lambda name: "glibc 2.4"), self.assertRaisesRegex(
                programs.Unusable, r"needs glibc 2\.\d+, this machine has 2\.4"):
            programs.unpack(pack, folder)
        with self.assertRaisesRegex(programs.Unusable, "1000 are allowed"):
            programs.write_pack(BUILD, ("test_kernels_emulation",), pack, 1000)
        self.assertFalse(pack.exists())

    def test_gpu_libraries_are_found_in_a_toolkit_or_named(self):
        toolkit = self.dir / "toolkit"
        (toolkit / "lib64").mkdir(parents=True)
        (toolkit / "lib64" / "libcublas.so.13").touch()
        ldd = self.dir / "ldd"
        ldd.write_text(f'#!/bin/sh\ncase "$LD_LIBRARY_PATH" in *{toolkit}/lib64) found={toolkit}/lib64/libcublas.so.13 ;; '
                       '*) found="not found" ;; esac\nprintf "\\tlibcublas.so.13 => $found\\n\\tlibc.so.6 => not found\\n"\n')
        ldd.chmod(0o755)
        with mock.patch.dict(os.environ, {"PATH": f"{self.dir}:{os.environ['PATH']}", "CUDA_HOME": str(toolkit),
                                          "LD_LIBRARY_PATH": ""}):
            self.assertEqual(programs.library_path(["x"]), f"{toolkit}/lib64")
            (toolkit / "lib64" / "libcublas.so.13").unlink()
            with mock.patch.object(programs, "toolkit_folders", lambda inside: []), self.assertRaisesRegex(
                    programs.Unusable, r"no libcublas\.so\.13 in the toolkit"):
                programs.library_path(["x"])


if __name__ == "__main__":
    unittest.main()
