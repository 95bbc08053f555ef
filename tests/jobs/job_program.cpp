// A whole job with the fake codec and generator; job_test.cpp and memory_test.cpp run it under mpiexec and alone.
//   job_program OUTPUT [--restart] [--fail RANK:PLACE] [--step-s S] [--running N] [--metrics-s S] [--elsewhere DIR] [--protect PATH] INPUT...
// PLACE: load (agreed), step, encode, write, foreign, thread.  --elsewhere: the last rank changes to DIR first.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "fakes.h"
#include "io/file.h"
#include "jobs/job.h"
#include "kernels/core/error.h"

using namespace tokenmill;

namespace {

struct Options {
  jobs::JobOptions job;
  int fail_rank = -1;
  std::string fail_place, elsewhere;
  double step_s = 0;
  int64_t running = 8;
  double metrics_s = 0;  // 0: none
};

Options parse(int argc, char** argv) {
  Options options;
  options.job.output_dir = argv[1];
  options.job.progress_s = 0.2;
  options.job.visible_within_s = 0.5;
  options.job.reader.max_record_bytes = 1 << 20;
  options.job.prefix_bytes = [](std::string_view record) { return record; };
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--restart")
      options.job.restart = true;
    else if (word == "--step-s")
      options.step_s = std::atof(argv[++i]);
    else if (word == "--running")
      options.running = std::atoll(argv[++i]);
    else if (word == "--metrics-s")
      options.metrics_s = std::atof(argv[++i]);
    else if (word == "--elsewhere")
      options.elsewhere = argv[++i];
    else if (word == "--protect")
      options.job.protected_paths.push_back(argv[++i]);
    else if (word == "--fail") {
      const std::string text = argv[++i];
      options.fail_rank = std::atoi(text.c_str());
      options.fail_place = text.substr(text.find(':') + 1);
    } else {
      options.job.inputs.push_back(word);
    }
  }
  return options;
}

void arm(const std::string& place, test::FakeCodec& codec, test::FakeGenerator& generator) {
  if (place == "encode")
    codec.on_encode = [](int64_t) { throw Error(ErrorKind::kInput, "planted in the feed thread"); };
  generator.on_step = [=](int64_t steps) {
    if (place == "step" && steps == 3) throw Error(ErrorKind::kDevice, "planted in the step loop");
    if (place == "foreign" && steps == 3) throw std::runtime_error("planted, not ours");
    if (place == "thread" && steps == 3) std::thread([] { throw Error(ErrorKind::kIo, "planted in a thread"); }).join();
  };
}

int run(const Options& options, parallel::MpiSession& session) {
  const parallel::Comm& world = session.world();
  if (!options.elsewhere.empty() && world.rank() == world.size() - 1 && chdir(options.elsewhere.c_str()) != 0)
    return 99;
  const bool fails = world.rank() == options.fail_rank;
  jobs::JobProgress last;
  jobs::JobOptions job_options = options.job;
  int64_t calls = 0;
  jobs::JobMetrics seen;
  if (options.metrics_s > 0) {
    job_options.metrics_s = options.metrics_s;
    job_options.on_metrics = [&](const jobs::JobMetrics& metrics) {
      ++calls;
      seen = metrics;
    };
  }
  jobs::Job job(job_options, session, [&](const jobs::JobProgress& progress) {
    last = progress;
    if (progress.phase == jobs::JobPhase::kRunning)
      std::printf("progress %ld of %ld\n", static_cast<long>(progress.rows_done),
                  static_cast<long>(progress.rows_total));
  });
  parallel::agree_on(world, [&] {
    if (fails && options.fail_place == "load") throw Error(ErrorKind::kIo, "planted while loading");
  });
  test::FakeCodec codec;
  test::FakeGenerator generator(options.running, options.step_s);
  if (fails && options.fail_place == "write") {  // the part file cannot be created: its name is taken
    const std::string part = jobs::OutputDir(options.job.output_dir).part_path(world.rank());
    io::File::create_new(part).close();
  } else if (fails) {
    arm(options.fail_place, codec, generator);
  }
  const jobs::JobOutcome outcome = job.run(codec, generator);
  job.write_report({{"configuration", {{"running", options.running}}}}, outcome);
  if (options.metrics_s > 0 && world.rank() == 0) {
    const jobs::JobMetrics end = outcome.metrics();
    std::printf("metrics calls %s, %ld replicas, rows %s, distributions %s; at the end %ld tokens in %ld rows\n",
                calls > 0 ? "some" : "none", static_cast<long>(seen.num_replicas),
                seen.rows_done > 0 && seen.rows_done <= seen.rows_total ? "some" : "none",
                seen.distributions.generation_tokens.count() > 0 ? "some" : "none",
                static_cast<long>(end.distributions.generation_tokens.sum()), static_cast<long>(end.rows_done));
  }
  if (world.rank() != 0) return 0;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("rows %ld failed %ld replicas %zu last_phase %d peak_kib %ld\n", static_cast<long>(outcome.rows),
              static_cast<long>(outcome.failed), outcome.replicas.size(), static_cast<int>(last.phase),
              usage.ru_maxrss);
  for (const jobs::ReplicaReport& replica : outcome.replicas)
    std::printf("replica %d rows %ld\n", replica.rank, static_cast<long>(replica.status.rows_finished));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  parallel::MpiSession session(
      {.exit_code =
           [](ErrorKind kind) {
             if (kind == ErrorKind::kInternal) return 1;
             return kind == ErrorKind::kConfig || kind == ErrorKind::kInput ? 2 : 4;
           },
       .print = [](const Error& e) { std::fprintf(stderr, "error[%s] %s\n", to_string(e.kind()), e.what()); }});
  return session.guard([&] { return run(options, session); });
}
