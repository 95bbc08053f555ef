#include "jobs/job.h"

#include <algorithm>
#include <filesystem>

#include "jobs/batch_run.h"
#include "jobs/commit.h"
#include "jobs/control.h"
#include "jobs/death_note.h"
#include "jobs/feed.h"
#include "jobs/journal/advice.h"
#include "jobs/journal/running_rows.h"
#include "jobs/merge_shared.h"
#include "jobs/old_results.h"
#include "jobs/watchdog.h"
#include "kernels/core/check.h"
#include "kernels/core/clock.h"
#include "kernels/core/log.h"

namespace tokenmill::jobs {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Error as_error(const std::exception& exception) {
  if (const auto* error = dynamic_cast<const Error*>(&exception)) return *error;
  return Error(ErrorKind::kInternal, std::string(exception.what()));
}

}  // namespace

/// On rank 0: the rows that a rank stands still with are suspects, too.
void Job::note_stall(int rank, const RankState& state) const {
  const std::string_view what = state.what.data();
  if (state.lasts_s < options_.stall_s || (what != Activity::kStep && what != Activity::kEncoding)) return;
  DeathNote::write(output_.death_note(claim_.run(), replicas_.at(static_cast<size_t>(rank)), rank),
                   what == Activity::kEncoding ? state.sequence : -1, "no progress");
}

void Job::announce(JobPhase phase) const {
  if (session_.world().rank() == 0 && progress_) 
    progress_({.phase = phase, .rows_total = num_rows(), .rows_done = before_.done, .rows_failed = before_.failed});
}

JobOutcome Job::run(const RowCodec& codec, Generator& generator) {
  TM_ASSERT(replica() >= 0, "rank {} leads no replica", session_.world().rank());
  return run_share([&](Control& control, ReplicaReport& report) { lead(codec, generator, control, report); });
}

JobOutcome Job::follow(const std::function<void()>& steps) {
  TM_ASSERT(replica() < 0, "rank {} leads replica {}", session_.world().rank(), replica());
  return run_share([&](Control& control, ReplicaReport&) {
    try {
      steps();
    } catch (const std::exception& e) {
      DeathNote::write(e);
      control.fatal(as_error(e));
    }
  });
}

/// What this rank leads; -1: nothing.
int Job::replica() const {
  const auto found = std::find(options_.leaders.begin(), options_.leaders.end(), session_.world().rank());
  return found == options_.leaders.end() ? -1 : static_cast<int>(found - options_.leaders.begin());
}

/// Every rank's part of the rows, between a common start and the merge. share() lets no exception out: an error never
/// unwinds through a rank's threads, Control::fatal() ends the job where it happens.
JobOutcome Job::run_share(const std::function<void(Control&, ReplicaReport&)>& share) {
  const parallel::Comm& world = session_.world();
  JobOutcome outcome{.rows = num_rows(),
                     .failed = before_.failed,
                     .done = before_.done,
                     .before = before_,
                     .index_s = index_s_,
                     .plan_s = plan_s_};
  parallel::agree(world, std::nullopt);  // replicas start together
  ReplicaReport report{.rank = world.rank(), .host = parallel::host_name()};
  Walltime walltime;
  {
    const DeathNote death_note(
        output_.death_note(claim_.run(), replicas_.at(static_cast<size_t>(world.rank())), world.rank()));
    ProgressTracker tracker(num_rows(), before_);
    Control control(
        session_, options_.leaders, control_options(tracker),
        Coordinator(std::move(plan_), std::move(done_), static_cast<int>(options_.leaders.size()),
                    {.max_chunk_rows = options_.max_chunk_rows, .busy_rows = options_.busy_rows}, verdict_.suspects));
    const Watchdog watchdog(session_, {&activity_, &feed_activity_}, watchdog_options(control));
    handle_signals(StopLevel::kNow, [&control](StopLevel level) { control.request_stop(level); });
    share(control, report);
    control.finish();
    handle_signals(StopLevel::kNow);
    walltime = control.walltime();
  }
  report.peak_resident_bytes = peak_resident_bytes();
  outcome.replicas = gather_reports(world, options_.leaders, report);
  for (const ReplicaReport& replica : outcome.replicas) {
    outcome.failed += replica.status.rows_failed;
    outcome.done += replica.status.rows_finished;
    outcome.saved += replica.status.rows_saved;
    outcome.run_s = std::max(outcome.run_s, replica.run_s);
  }
  outcome.stopped = parallel::gather_values(world, stop_cause(outcome, walltime))[0];
  if (outcome.stopped != StopCause::kNone) {
    outcome.elapsed_s = seconds_since(start_);
    return outcome;
  }
  const auto merge_start = Clock::now();
  announce(JobPhase::kMerging);
  handle_signals(StopLevel::kSave);  // a merge is short or begun anew
  watch_merge(outcome.failed);
  handle_signals(StopLevel::kNow);
  outcome.merge_s = seconds_since(merge_start);
  outcome.elapsed_s = seconds_since(start_);
  return outcome;
}

/// Until the next call: from this level on all ranks end at once, whatever comes before goes to `rise`.
void Job::handle_signals(StopLevel least, std::function<void(StopLevel)> rise) const {
  if (options_.signals == nullptr) return;
  options_.signals->handle([least, rise = std::move(rise), end_now = options_.end_now](StopLevel level) {
    if (level >= least) end_now();
    if (rise) rise(level);
  });
}

/// On rank 0: why nothing is merged now, if so.
StopCause Job::stop_cause(const JobOutcome& outcome, const Walltime& walltime) const {
  if (session_.world().rank() != 0) return StopCause::kNone;
  if (outcome.done < num_rows()) {
    TM_ASSERT(walltime.level() != StopLevel::kNone, "{} of {} rows have a result", outcome.done, num_rows());
    return walltime.cause();
  }
  if (walltime.level() >= StopLevel::kSave && walltime.cause() == StopCause::kSignal) return StopCause::kSignal;
  return walltime.has_time_to_merge(SteadyClock().now_s(), part_bytes()) ? StopCause::kNone : StopCause::kTime;
}

int64_t Job::part_bytes() const {
  int64_t sum = 0;
  for (const PartPaths& part : list_parts(output_)) {
    std::error_code error;
    const auto bytes = std::filesystem::file_size(part.part, error);
    if (!error) sum += static_cast<int64_t>(bytes);
  }
  return sum;
}

/// tracker outlives what is returned.
ControlOptions Job::control_options(ProgressTracker& tracker) const {
  ControlOptions out{.progress_s = options_.progress_s, .walltime = Walltime(options_.walltime)};
  if (progress_)
    out.on_progress = [&](const std::vector<ReplicaStatus>& statuses, double now_s) {
      progress_(tracker.update(statuses, now_s));
    };
  if (options_.on_metrics) {
    out.metrics_s = options_.metrics_s;
    out.on_metrics = [&](const std::vector<ReplicaStatus>& statuses, const std::vector<std::string>& distributions,
                         double now_s) {
      options_.on_metrics(job_metrics(statuses, distributions, num_rows(), before_, now_s));
    };
  }
  return out;
}

/// control outlives what is returned.
WatchdogOptions Job::watchdog_options(Control& control) const {
  return {.stall_s = options_.stall_s,
          .commit_s = options_.commit_s,
          .saving =
              [&, signals = options_.signals] {
                return control.stop_level() >= StopLevel::kSave ||
                       (signals != nullptr && signals->level() >= StopLevel::kSave);
              },
          .waits_in = options_.waits_in,
          .on_stall =
              [&](int rank, const RankState& state) {
                note_stall(rank, state);
                control.request_stop(StopLevel::kSave);
              }};
}

/// This replica's rows.
void Job::lead(const RowCodec& codec, Generator& generator, Control& control, ReplicaReport& report) {
  const auto run_start = Clock::now();
  const auto fatal = [&](const std::exception& e) { control.fatal(as_error(e)); };
  const auto fatal_of_rows = [&](const std::exception& e) {
    DeathNote::write(e);
    fatal(e);
  };
  RunningRows running(output_.running_rows(claim_.run(), replica()));
  Commit commit(output_.part(claim_.run(), replica()),
                {.commit_s = options_.commit_s,
                 .durability = options_.durability,
                 .before_commit = [&] { claim_.check_still_ours(); }},
                fatal);
  Feed feed(index_, codec, {.reader = options_.reader, .max_queued_rows = options_.queued_rows},
            {.pull = [&] { return control.pull(); },
             .on_error = fatal_of_rows,
             .partial = &partial_,
             .refused = &verdict_.refused,
             .activity = &feed_activity_});
  try {
    auto last_metrics = run_start;
    report.status = run_batches(generator, feed, commit,
                                {.publish =
                                     [&](const ReplicaStatus& status) {
                                       control.publish(status);
                                       if (!options_.on_metrics || seconds_since(last_metrics) < options_.metrics_s)
                                         return;
                                       last_metrics = Clock::now();
                                       control.publish_distributions(generator.distributions().serialize());
                                     },
                                 .stop_level = [&] { return control.stop_level(); },
                                 .activity = &activity_,
                                 .running = &running});
    report.distributions = generator.distributions().serialize();
    report.run_s = seconds_since(run_start);
    generator.finish();
    commit.close();
    running.remove();
    report.journal = commit.stats();
  } catch (const std::exception& e) {
    fatal_of_rows(e);
  }
}

/// On rank 0: the files are those that the job began with. A time can be set back, so contents are compared too.
void Job::check_inputs_unchanged() const {
  const std::string difference = job_identity(options_.identity, options_.inputs).difference_from(identity_);
  if (difference.empty()) return;
  throw Error(ErrorKind::kIo,
              "inputs changed while the job ran ({}): rows may be of the old and of the new version, so nothing is "
              "merged. Give --restart to compute all of them from one",
              difference);
}

/// Collective: merge() under the eyes of a watchdog.
void Job::watch_merge(int64_t num_failed) {
  const Activity::Scope scope(activity_, "merging from row", rows_.begin);
  watch_together(session_, options_.stall_s, activity_, [&] { merge(num_failed); });
}

/// Collective.
void Job::merge(int64_t num_failed) {
  const parallel::Comm& world = session_.world();
  std::vector<PartPaths> parts;
  MergeTotals totals;
  int together = 0;
  parallel::run_on_root(world, [&] {
    check_inputs_unchanged();
    claim_.check_still_ours();
    parts = list_parts(output_);
    if (options_.part_outputs) return;
    together = options_.output_lines && !options_.has_attachments && world.size() > 1 &&
               part_bytes() >= options_.shared_merge_bytes;
    if (!together) totals = merge_alone(parts);
  });
  if (options_.part_outputs)
    totals = merge_into_parts(parts);
  else if (parallel::gather_values(world, together)[0])
    totals = merge_together(parts);
  parallel::run_on_root(world, [&] {
    remove_output_parts(output_, options_.part_outputs ? output_.output_parts_dir(claim_.run()) : "");
  });
  TM_ASSERT(world.rank() != 0 || totals.failed == num_failed,
            "{} rows of the output failed, the replicas and earlier runs counted {}", totals.failed, num_failed);
}

MergeTotals Job::merge_alone(const std::vector<PartPaths>& parts) {
  MergeOutputs outputs;
  with_advice([&] {
    if (options_.outputs) outputs = options_.outputs(output_);
    if (options_.output_lines) outputs.push_back(std::make_unique<io::LineWriter>(output_.output_path()));
  });
  return merge_parts(parts, rows_, outputs, {.activity = &activity_});
}

/// Collective. The directory is this run's; those of earlier ones go when output.h5 shows it.
MergeTotals Job::merge_into_parts(const std::vector<PartPaths>& parts) {
  return merge_in_parts(parts, rows_, output_.output_parts_dir(claim_.run()), session_.world(), *options_.part_outputs,
                        {.activity = &activity_});
}

/// Collective. Rank 0 writes what is no lines while the others write the lines.
MergeTotals Job::merge_together(const std::vector<PartPaths>& parts) {
  SharedMergeOptions shared{.merge = {.activity = &activity_}};
  if (options_.outputs)
    shared.other_work = [&] {
      const MergeOutputs outputs = with_advice([&] { return options_.outputs(output_); });
      if (!outputs.empty()) merge_parts(parts, rows_, outputs, {.activity = &activity_});
    };
  return merge_shared(parts, rows_, output_.output_path(), session_.world(), shared);
}

void Job::write_report(const std::vector<std::pair<std::string, ReportSection>>& sections, const JobOutcome& outcome) {
  parallel::run_on_root(session_.world(),
                        [&] {
                          claim_.check_still_ours();
                          with_advice([&] { write_run_report(output_.report_path(), sections, options_.inputs, outcome); });
                        });
}

}  // namespace tokenmill::jobs
