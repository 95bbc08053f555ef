#include "app/report_files.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <utility>

#include "app/options.h"
#include "io/file.h"
#include "kernels/core/error.h"
#include "tests/support/temp_dir.h"

using namespace tokenmill;
using namespace tokenmill::app;
namespace fs = std::filesystem;

namespace {

/// A directory with a job's files: rows.jsonl, model/weights, template.jinja, job.yaml, out.
struct Job {
  test::TempDir dir;
  RunOptions options;
  Job() {
    for (const char* name : {"rows.jsonl", "model/weights", "template.jinja", "job.yaml"}) dir.write(name, "old");
    options.input = {dir / "rows.jsonl"};
    options.model = dir / "model";
    options.chat_template = dir / "template.jinja";
    options.job_file = dir / "job.yaml";
    options.output = dir / "out";
  }
  /// What is wrong with the files, empty: nothing.
  std::string fault(int num_ranks = 1, const std::string& command = "run") const {
    try {
      check_report_files(options, command, num_ranks);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kConfig);
      return error.what();
    }
    return "";
  }
};

}  // namespace

TEST_CASE("a file of figures never has the name of what the run reads") {
  Job job;
  fs::create_hard_link(job.dir / "rows.jsonl", job.dir / "hard");
  fs::create_symlink(job.dir / "rows.jsonl", job.dir / "soft");
  for (const char* name : {"rows.jsonl", "hard", "soft", "./model/../rows.jsonl", "model/weights", "model/new",
                           "template.jinja", "job.yaml"}) {
    CAPTURE(name);
    job.options.metrics_file = job.dir / name;
    CHECK(job.fault().find("--metrics-file " + job.options.metrics_file + " would overwrite what the run reads") == 0);
    job.options.iteration_log = std::exchange(job.options.metrics_file, "");
    CHECK(job.fault().find("--iteration-log") == 0);
    job.options.bench.output_json = std::exchange(job.options.iteration_log, "");
    CHECK(job.fault() == "");  // not run's
    CHECK(job.fault(1, "bench throughput").find("--output-json") == 0);
    job.options.bench.output_json.clear();
  }
}

TEST_CASE("an iteration log of several ranks is judged by the names that it has") {
  Job job;
  job.dir.write("rows.jsonl.2", "old");
  job.options.input = {job.dir / "rows.jsonl.2"};
  job.options.iteration_log = job.dir / "rows.jsonl";
  CHECK(job.fault(2) == "");
  CHECK(job.fault(3).find("rows.jsonl.2 would overwrite") != std::string::npos);
}

TEST_CASE("a file of figures is no result, and two of them are two files") {
  Job job;
  for (const char* name :
       {"out/output.jsonl", "out/run.yaml", "out/row_metrics.jsonl", "out/journal", "out/journal/x"}) {
    CAPTURE(name);
    job.options.metrics_file = job.dir / name;
    CHECK(job.fault().find("is the name of a result") != std::string::npos);
  }
  job.options.metrics_file = job.dir / "out/metrics.prom";
  CHECK(job.fault() == "");
  job.options.iteration_log = job.dir / "out/../out/metrics.prom";
  CHECK(job.fault().find("--metrics-file and --iteration-log both name") == 0);
  CHECK(job.fault(2) == "");
}

TEST_CASE("what is replaced as a whole is a regular file; a log may go to a device") {
  Job job;
  job.options.metrics_file = "/dev/null";
  CHECK(job.fault().find("--metrics-file /dev/null: is a terminal or another device and would be replaced") == 0);
  job.options.metrics_file = "/dev/stdout";
  CHECK(job.fault().find("--metrics-file /dev/stdout: is a symbolic link (to /proc/self/fd/1)") == 0);
  job.options.metrics_file = job.dir.path();
  CHECK(job.fault().find("is a directory; it must be a file") != std::string::npos);
  job.options.iteration_log = std::exchange(job.options.metrics_file, "");
  CHECK(job.fault().find("is a directory; it must be a file") != std::string::npos);
  job.options.iteration_log = "/dev/null";
  CHECK(job.fault() == "");
  job.options.iteration_log.clear();
  job.options.bench.output_json = "/dev/null";
  CHECK(job.fault(1, "bench throughput") == "");
}

TEST_CASE("files of figures are tried before a run, and nothing shows that they were") {
  Job job;
  job.dir.write("steps", "old steps\n");
  const auto tried = [&](const std::string& command = "run", int num_replicas = 1) -> std::string {
    try {
      try_report_files(job.options, command, num_replicas);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kIo);
      return error.what();
    }
    return "";
  };
  job.options.metrics_file = job.dir / "none/m.prom";
  for (const char* command : {"run", "validate"})
    CHECK(tried(command).find("--metrics-file " + job.options.metrics_file + " cannot be written: ") == 0);
  CHECK(tried("bench throughput") == "");  // not bench's
  job.options.metrics_file = job.dir / "out/m.prom";
  CHECK(tried() == "");  // the run makes out
  job.options.metrics_file = job.dir / "out/deeper/m.prom";
  CHECK(tried().find("; name a file in a directory that is there") != std::string::npos);
  job.options.metrics_file = job.dir / "m.prom";
  job.options.iteration_log = job.dir / "rows.jsonl/steps";
  CHECK(tried("run", 3).find("--iteration-log " + job.options.iteration_log + ".0 cannot be written: ") == 0);
  job.options.iteration_log = job.dir / "steps";
  CHECK(tried() == "");
  CHECK(io::read_file(job.dir / "steps", 100) == "old steps\n");
  REQUIRE(::mkfifo((job.dir / "pipe").c_str(), 0600) == 0);
  job.options.iteration_log = job.dir / "pipe";  // without a reader: not waited for
  CHECK(tried() == "");
  fs::remove(job.dir / "pipe");
  CHECK_FALSE(fs::exists(job.dir / "out"));
  CHECK(std::distance(fs::directory_iterator(job.dir.path()), {}) == 5);  // the job's four and steps
}
