// A whole job with the fake codec and generator; job_test.cpp and memory_test.cpp run it under mpiexec and alone.
//   job_program OUTPUT [--restart] [--fail RANK:PLACE] [--step-s S] [--running N] [--metrics-s S] [--elsewhere DIR]
//               [--retry-errors] [--accept-change] [--commit-s S] [--fact VALUE] [--good] [--finished-log FILE]
//               [--protect PATH] [--replica-ranks N] [--max-chunk-rows N] [--drain-s S] [--max-s S]
//               [--long-step-s S] [--stall-s S] [--silent-s S] [--poison ROW:HOW] [--shard K/N]
//               [--shared-merge-bytes N] INPUT...
// USR1, USR2 and TERM stop it, as --max-s does: exit 75. "row_steps N" says what was computed.
// PLACE: load (agreed), step, encode, write, foreign, thread, and after 20 steps kill (by SIGKILL), segv, abort, exit
// (with 0), stop (by SIGSTOP), hang; encode-hang: in the feed; rewrite, rewrite_quietly: other bytes in the first
// input, as many, the latter with the file's old time. --elsewhere: the last rank changes to DIR first.
// HOW a row ends its process: segv, abort, throw, kill, hang; encode-segv, encode-throw: in the feed.
// --fact: part of the identity. --good: no row fails. --finished-log: rows and nanoseconds since 1970, as they finish.
// --replica-ranks: ranks of a replica; its leader tells the others of every step, and they count them.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "fakes.h"
#include "io/file.h"
#include "jobs/job.h"
#include "jobs/stop_signals.h"
#include "kernels/core/clock.h"
#include "kernels/core/error.h"
#include "parallel/groups.h"
#include "parallel/host_channel.h"

using namespace tokenmill;

namespace {

struct Options {
  jobs::JobOptions job;
  int fail_rank = -1;
  std::string fail_place, elsewhere;
  double step_s = 0;
  int64_t running = 8;
  double metrics_s = 0;  // 0: none
  int replica_ranks = 1;
  bool all_good = false;
  std::string finished_log;
  int64_t poison_row = -1;
  std::string poison_how;
  double max_s = 0;        // 0: none
  double long_step_s = 0;  // of the 20th
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
    else if (word == "--shard") {
      const std::string text = argv[++i];
      options.job.shard = {std::atoll(text.c_str()), std::atoll(text.c_str() + text.find('/') + 1)};
    } else if (word == "--retry-errors")
      options.job.retry_errors = true;
    else if (word == "--accept-change")
      options.job.accept_change = true;
    else if (word == "--commit-s")
      options.job.commit_s = std::atof(argv[++i]);
    else if (word == "--fact")
      options.job.identity.emplace_back("fact", argv[++i]);
    else if (word == "--finished-log")
      options.finished_log = argv[++i];
    else if (word == "--good")
      options.all_good = true;
    else if (word == "--drain-s")
      options.job.walltime.drain_s = std::atof(argv[++i]);
    else if (word == "--long-step-s")
      options.long_step_s = std::atof(argv[++i]);
    else if (word == "--stall-s")
      options.job.stall_s = std::atof(argv[++i]);
    else if (word == "--silent-s")
      options.job.predecessor = jobs::Predecessor(std::atof(argv[++i]));
    else if (word == "--max-s")
      options.max_s = std::atof(argv[++i]);
    else if (word == "--step-s")
      options.step_s = std::atof(argv[++i]);
    else if (word == "--running")
      options.running = std::atoll(argv[++i]);
    else if (word == "--metrics-s")
      options.metrics_s = std::atof(argv[++i]);
    else if (word == "--elsewhere")
      options.elsewhere = argv[++i];
    else if (word == "--replica-ranks")
      options.replica_ranks = std::atoi(argv[++i]);
    else if (word == "--max-chunk-rows")
      options.job.max_chunk_rows = std::atoll(argv[++i]);
    else if (word == "--shared-merge-bytes")
      options.job.shared_merge_bytes = std::atoll(argv[++i]);
    else if (word == "--protect")
      options.job.protected_paths.push_back(argv[++i]);
    else if (word == "--poison") {
      const std::string text = argv[++i];
      options.poison_row = std::atoll(text.c_str());
      options.poison_how = text.substr(text.find(':') + 1);
    } else if (word == "--fail") {
      const std::string text = argv[++i];
      options.fail_rank = std::atoi(text.c_str());
      options.fail_place = text.substr(text.find(':') + 1);
    } else {
      options.job.inputs.push_back(word);
    }
  }
  return options;
}

/// What goes wrong in a step loop, a leader's or a follower's.
void fail_in_step(const std::string& place, int64_t steps) {
  if (place == "step" && steps == 3) throw Error(ErrorKind::kDevice, "planted in the step loop");
  if (place == "foreign" && steps == 3) throw std::runtime_error("planted, not ours");
  if (steps == 20) {
    if (place == "kill") raise(SIGKILL);
    if (place == "segv") raise(SIGSEGV);
    if (place == "abort") std::abort();
    if (place == "exit") std::exit(0);  // as a library might
    if (place == "stop") raise(SIGSTOP);
    if (place == "hang") pause();
  }
  if (place == "thread" && steps == 3) std::thread([] { throw Error(ErrorKind::kIo, "planted in a thread"); }).join();
}

void rewrite(const std::string& path, bool quietly) {
  namespace fs = std::filesystem;
  const fs::file_time_type before = fs::last_write_time(path);
  std::string text = io::read_file(path, 1 << 30);
  std::replace(text.begin(), text.end(), 'a', 'b');
  std::ofstream(path, std::ios::binary) << text;
  fs::last_write_time(path, quietly ? before : before + std::chrono::milliseconds(1));
}

/// After what is finished has been committed.
void poison(const std::string& how) {
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  if (how == "segv") raise(SIGSEGV);
  if (how == "abort") std::abort();
  if (how == "throw") throw Error(ErrorKind::kDevice, "planted in a row");
  if (how == "kill") raise(SIGKILL);
  if (how == "hang") pause();
}

void arm(const std::string& place, test::FakeCodec& codec) {
  if (place == "encode")
    codec.on_encode = [](int64_t) { throw Error(ErrorKind::kInput, "planted in the feed thread"); };
  if (place == "encode-hang") codec.on_encode = [](int64_t) { pause(); };
}

/// A replica's steps, from its leader to the other ranks.
class StepChannel {
 public:
  explicit StepChannel(const parallel::Comm& replica) : channel_(replica) {}
  void step() { tell(kStep); }
  void stop() {
    tell(kStop);
    if (!channel_.flush(10)) throw Error(ErrorKind::kMpi, "the last step was not taken");
  }
  /// A follower's loop: returns the number of steps.
  int64_t follow(const std::function<void(int64_t)>& on_step) {
    for (int64_t steps = 0;; ++steps) {
      if (channel_.receive(0, 1e6, "a step").type == kStop) return steps;
      on_step(steps);
    }
  }

 private:
  enum { kStep, kStop };
  void tell(int type) {
    for (int rank = 1; rank < channel_.size(); ++rank) channel_.send(rank, type, {});
  }
  parallel::HostChannel channel_;
};

constexpr int kExitStopped = 75;

int run(const Options& options, parallel::MpiSession& session, jobs::StopSignals& signals) {
  const parallel::Comm& world = session.world();
  if (!options.elsewhere.empty() && world.rank() == world.size() - 1 && chdir(options.elsewhere.c_str()) != 0)
    return 99;
  const bool fails = world.rank() == options.fail_rank;
  const std::string place = fails ? options.fail_place : "";
  const parallel::Grid grid =
      parallel::agree_on(world, [&] { return parallel::resolve_grid({.pp = options.replica_ranks}, world.size()); });
  const parallel::Groups groups = parallel::make_groups(world, parallel::gather_topology(world), grid);
  StepChannel steps(groups.replica);
  jobs::JobProgress last;
  jobs::JobOptions job_options = options.job;
  job_options.leaders = groups.leaders;
  job_options.replica = groups.place.dp_rank;
  job_options.signals = &signals;
  job_options.end_now = [&] { session.end_now(kExitStopped); };
  signals.handle([&](jobs::StopLevel) { session.end_now(kExitStopped); });
  job_options.walltime.start_s = SteadyClock().now_s();
  if (options.max_s > 0) job_options.walltime.end_s = job_options.walltime.start_s + options.max_s;
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
    if (place == "load") throw Error(ErrorKind::kIo, "planted while loading");
  });
  test::FakeCodec codec;
  codec.all_good = options.all_good;
  test::FakeGenerator generator(options.running, options.step_s);
  if (place == "write")  // the part file cannot be created: its name is taken
    io::File::create_new(jobs::OutputDir(options.job.output_dir).part(0, groups.place.dp_rank).part).close();
  arm(place, codec);
  const std::string& how = options.poison_how;
  if (options.poison_row >= 0 && how.starts_with("encode-"))
    codec.on_encode = [&](int64_t row) {
      if (row == options.poison_row) poison(how.substr(7));
    };
  else if (options.poison_row >= 0)
    generator.on_row = [&](int64_t row) {
      if (row == options.poison_row) poison(how);
    };
  generator.on_step = [&](int64_t done, bool has_work) {
    fail_in_step(place, done);
    if (done == 20) std::this_thread::sleep_for(std::chrono::duration<double>(options.long_step_s));
    if (place.starts_with("rewrite") && done == 3) rewrite(options.job.inputs.at(0), place == "rewrite_quietly");
    if (has_work) steps.step();
  };
  std::ofstream finished_log(options.finished_log, std::ios::app);
  if (!options.finished_log.empty())
    generator.on_finished_row = [&](int64_t row) {
      finished_log << row << ' ' << std::chrono::system_clock::now().time_since_epoch().count() << std::endl;
    };
  generator.on_finish = [&] { steps.stop(); };
  int64_t followed = 0;
  const jobs::JobOutcome outcome = groups.replica.rank() == 0 ? job.run(codec, generator) : job.follow([&] {
    followed = steps.follow([&](int64_t done) { fail_in_step(place, done); });
  });
  job.write_report({{"configuration", {{"running", options.running}}}}, outcome);
  if (options.metrics_s > 0 && world.rank() == 0) {
    const jobs::JobMetrics end = outcome.metrics();
    std::printf("metrics calls %s, %ld replicas, rows %s, distributions %s; at the end %ld tokens in %ld rows\n",
                calls > 0 ? "some" : "none", static_cast<long>(seen.num_replicas),
                seen.rows_done > 0 && seen.rows_done <= seen.rows_total ? "some" : "none",
                seen.distributions.generation_tokens.count() > 0 ? "some" : "none",
                static_cast<long>(end.distributions.generation_tokens.sum()), static_cast<long>(end.rows_done));
  }
  const std::vector<int64_t> row_steps = parallel::gather_values(world, generator.row_steps);
  const int exit_code = outcome.stopped == jobs::StopCause::kNone ? 0 : kExitStopped;
  const std::vector<int64_t> all_followed = parallel::gather_values(world, followed);
  if (world.rank() != 0) return exit_code;
  std::printf("row_steps %ld done %ld saved %ld\n",
              static_cast<long>(std::accumulate(row_steps.begin(), row_steps.end(), int64_t{0})),
              static_cast<long>(outcome.done), static_cast<long>(outcome.saved));
  for (int rank = 0; rank < world.size(); ++rank) {
    if (all_followed[static_cast<size_t>(rank)] > 0)
      std::printf("follower %d steps %ld\n", rank, static_cast<long>(all_followed[static_cast<size_t>(rank)]));
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("before %ld failed %ld\n", static_cast<long>(outcome.before.done), static_cast<long>(outcome.before.failed));
  std::printf("rows %ld failed %ld replicas %zu last_phase %d peak_kib %ld\n", static_cast<long>(outcome.rows),
              static_cast<long>(outcome.failed), outcome.replicas.size(), static_cast<int>(last.phase),
              usage.ru_maxrss);
  for (const jobs::ReplicaReport& replica : outcome.replicas)
    std::printf("replica %d rows %ld\nleader %d steps %ld\n", replica.rank,
                static_cast<long>(replica.status.rows_finished), replica.rank,
                static_cast<long>(replica.status.stats.steps));
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  jobs::StopSignals signals;
  parallel::MpiSession session(
      {.exit_code =
           [](ErrorKind kind) {
             if (kind == ErrorKind::kInternal) return 1;
             return kind == ErrorKind::kConfig || kind == ErrorKind::kInput ? 2 : 4;
           },
       .print = [](const Error& e) { std::fprintf(stderr, "error[%s] %s\n", to_string(e.kind()), e.what()); }});
  const int code = session.guard([&] { return run(options, session, signals); });
  signals.handle({});
  return code;
}
