"""The programs that scripts/gpu_check runs: those of a pack or of a build tree, and the libraries that they need."""
import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sysconfig
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ("tokenmill", "test_kernels", "test_kernels_cuda", "test_kernels_emulation", "test_engine_models")
RANKS_PROGRAM = "test_parallel_nccl_communicator_test"
PACK = ROOT / "build" / "gpu_check" / "pack.tar.xz"
MOST_BYTES = 64 << 20
# The target's own: of the C library, whose version is checked, and of NVIDIA's toolkit or Python wheels (cublasLt alone is
# larger than a pack may be).
SYSTEM = re.compile(r"(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|mvec|anl|nss_\w+))\.so")
NVIDIA = re.compile(r"lib(cudart|cublas|cublasLt|nccl|cuda)\.so")


class Unusable(Exception):
    """What is there cannot be used; the text says what to do."""


def run(*command, **options):
    print("+", *command, flush=True)
    if subprocess.run([str(part) for part in command], cwd=ROOT, check=False, **options).returncode != 0:
        raise Unusable(f"{' '.join(map(str, command[:3]))} ... failed; its messages are above")


def text_of(*command, **variables):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False,
                          env=os.environ | variables)
    return done.stdout + done.stderr


def build(preset, programs, architectures):
    """Builds the programs of a preset, in a tree of its own: they find tests/data from the root of any copy of the repository."""
    if not shutil.which("cmake"):
        raise Unusable("there is no cmake; install it, or bring a pack (scripts/gpu_check --pack elsewhere)")
    directory = ROOT / "build" / f"gpu_check-{preset}"
    options = [f"-DCMAKE_CUDA_ARCHITECTURES={architectures}"] if architectures else []
    # RPATH, not RUNPATH: it counts for the libraries' own libraries, too.
    run("cmake", "--preset", preset, "-B", directory, "-DTOKENMILL_TEST_DATA=tests/data", "-DCMAKE_BUILD_RPATH=$ORIGIN/../lib",
        "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags", *options)
    run("cmake", "--build", directory, "--parallel", os.cpu_count(), "--target", *programs)
    return directory


def find(directory, names):
    """{name: path} of the programs in a build tree or an unpacked pack."""
    paths = {path.name: path for path in sorted(directory.rglob("*"))
             if path.name in names and path.is_file() and os.access(path, os.X_OK)}
    if missing := [name for name in names if name not in paths]:
        raise Unusable(f"{directory} lacks {', '.join(missing)}; build these targets there first")
    return paths


def libraries_of(program, **variables):
    """[(soname, path or None)] of all that the loader would load for a program."""
    found = re.findall(r"^\s*(\S+)(?: => (\S+|not found))?(?: \(0x\w+\))?$", text_of("ldd", program, **variables), re.MULTILINE)
    return [(pathlib.PurePath(name).name, path if path.startswith("/") else None) for name, path in found]


def needed_glibc(files):
    """The newest version of the C library whose symbols the files want, as (2, 36)."""
    versions = re.findall(r"\(?GLIBC_(\d+)\.(\d+)", text_of("objdump", "-T", *files))
    return max(((int(major), int(minor)) for major, minor in versions), default=(0, 0))


def write_pack(directory, names=PROGRAMS, pack=PACK, most_bytes=MOST_BYTES):
    """One file with the stripped programs and their libraries; prints what it holds. Raises where it is too large."""
    programs = find(directory, names)
    pack.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=pack.parent) as folder:
        stage = pathlib.Path(folder)
        (stage / "bin").mkdir()
        (stage / "lib").mkdir()
        nvidia = set()
        for name, path in programs.items():
            subprocess.run(["strip", "-o", stage / "bin" / name, path], check=True)
            for soname, library in libraries_of(path):
                if NVIDIA.match(soname):
                    nvidia.add(soname)
                elif not SYSTEM.match(soname):
                    if library is None:
                        raise Unusable(f"{path} needs {soname}, which is not here")
                    shutil.copyfile(library, stage / "lib" / soname)
        files = sorted([*(stage / "bin").iterdir(), *(stage / "lib").iterdir()])
        facts = {"glibc": needed_glibc(files), "nvidia": sorted(nvidia),
                 "source": text_of("git", "-C", ROOT, "describe", "--always", "--dirty").strip(),
                 "bytes": {str(file.relative_to(stage)): file.stat().st_size for file in files}}
        (stage / "pack.json").write_text(json.dumps(facts))
        with tarfile.open(pack, "w:xz", preset=6) as archive:
            for file in (stage / "pack.json", *files):
                archive.add(file, file.relative_to(stage))
    for name, size in facts["bytes"].items():
        print(f"{size / 2**20:9.2f} MiB  {name}")
    size = pack.stat().st_size
    print(f"{sum(facts['bytes'].values()) / 2**20:9.2f} MiB  in all; packed {size / 2**20:.2f} MiB: {pack}")
    print(f"It needs glibc {'.'.join(map(str, facts['glibc']))} or later and {', '.join(facts['nvidia']) or 'no GPU libraries'}.")
    if size > most_bytes:
        pack.unlink()
        raise Unusable(f"the pack has {size} bytes, {most_bytes} are allowed; name fewer --architectures (90a-real)")


def unpack(pack=PACK, folder=ROOT / "build" / "gpu_check-unpacked"):
    """The folder of an unpacked pack, unpacked anew when the pack has changed. Raises where this machine is too old."""
    stamp = f"{pack.stat().st_size} {pack.stat().st_mtime_ns}"
    if not (folder / "stamp").is_file() or (folder / "stamp").read_text() != stamp:
        shutil.rmtree(folder, ignore_errors=True)
        with tarfile.open(pack) as archive:
            archive.extractall(folder)
        (folder / "stamp").write_text(stamp)
    facts = json.loads((folder / "pack.json").read_text())
    here = tuple(map(int, os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")[:2]))
    if here < tuple(facts["glibc"]):
        raise Unusable(f"the pack needs glibc {'.'.join(map(str, facts['glibc']))}, this machine has "
                       f"{'.'.join(map(str, here))}; make the pack on a system as old as this one")
    return folder, facts


def toolkit_folders(inside):
    """Folders of CUDA toolkits that exist, e.g. their bin, best first."""
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    if nvcc := shutil.which("nvcc"):
        roots.append(pathlib.Path(nvcc).resolve().parents[1])
    roots += ["/usr/local/cuda", *sorted(glob.glob("/usr/local/cuda-*"), reverse=True)]
    return [folder for root in roots if root for folder in [pathlib.Path(root) / inside] if folder.is_dir()]


def wheel_folders():
    """Where NVIDIA's Python packages keep libraries, of this Python and of the one in PATH."""
    sites = {sysconfig.get_path("purelib")}
    if python := shutil.which("python3"):
        sites.add(text_of(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    return [pathlib.Path(folder) for site in sorted(sites) for folder in sorted(glob.glob(f"{site}/nvidia/*/lib"))]


def library_path(programs):
    """LD_LIBRARY_PATH under which the loader finds everything; raises naming what it does not find."""
    path = os.environ.get("LD_LIBRARY_PATH", "")

    def missing():
        return {soname for program in programs for soname, found in libraries_of(program, LD_LIBRARY_PATH=path)
                if found is None and not SYSTEM.match(soname)}

    for folder in [*toolkit_folders("lib64"), *toolkit_folders("targets/x86_64-linux/lib"), *wheel_folders()]:
        lacking = missing()
        if not lacking:
            break
        if any((folder / soname).exists() for soname in lacking):
            path = f"{path}:{folder}" if path else str(folder)
    if lacking := missing():
        raise Unusable(f"no {', '.join(sorted(lacking))} in the toolkit, the Python packages (nvidia-cublas, nvidia-nccl-cu13, "
                       "nvidia-cuda-runtime) or LD_LIBRARY_PATH; name the folder in LD_LIBRARY_PATH")
    return path


def find_tool(name):
    """A tool of the toolkit: in PATH, or where toolkits put it."""
    folders = [*toolkit_folders("bin"), *toolkit_folders(name), *map(pathlib.Path, sorted(glob.glob("/opt/nvidia/nsight-compute/*"), reverse=True))]
    return shutil.which(name) or next((str(folder / name) for folder in folders if (folder / name).is_file()), None)
