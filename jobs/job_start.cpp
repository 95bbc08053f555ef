// How a job begins: its identity, the index of its inputs, what earlier runs have done. The rest: job.cpp.
#include <numeric>

#include "jobs/job.h"
#include "jobs/journal/advice.h"
#include "jobs/journal/done_rows.h"
#include "jobs/journal/running_rows.h"
#include "jobs/watchdog.h"
#include "kernels/core/log.h"
#include "kernels/core/stopwatch.h"

namespace tokenmill::jobs {
namespace {

JobOptions with_leaders(JobOptions options, int num_ranks) {
  if (!options.leaders.empty()) return options;
  options.leaders.resize(static_cast<size_t>(num_ranks));
  std::iota(options.leaders.begin(), options.leaders.end(), 0);
  return options;
}

}  // namespace

OutputUse output_use(const JobOptions& options) {
  OutputUse use{
      .restart = options.restart, .accept_change = options.accept_change, .protected_paths = options.protected_paths};
  const std::vector<std::string> inputs = io::files_of(options.inputs);
  use.protected_paths.insert(use.protected_paths.end(), inputs.begin(), inputs.end());
  return use;
}

Job::Job(const JobOptions& options, parallel::MpiSession& session, ProgressCallback progress)
    : options_(with_leaders(options, session.world().size())),
      session_(session),
      progress_(std::move(progress)),
      output_(options.output_dir),
      claim_(output_, output_use(options), options.outputs_note, options.predecessor, options.visible_within_s),
      start_(std::chrono::steady_clock::now()) {
  const parallel::Comm& world = session_.world();
  const Stopwatch stopwatch(index_s_);
  const Activity::Scope scope(activity_, "indexing, stretch", 0);
  watch_together(session_, options_.stall_s, activity_, [&] { look_at_inputs(); });
  rows_ = options_.shard.rows_of(index_.num_rows());
  claim_.publish(rows_, world);
  index_.relocate(claim_.staged_scratch_dir(), output_.scratch_dir());
  parallel::run_on_root(world, [&] {
    read_journal();
    leave_other_shards();
  });
  share_what_is_done();
  replicas_ = parallel::gather_values(world, options_.replica >= 0 ? options_.replica : replica());
}

/// Collective: the job's identity, index_ and plan_.
void Job::look_at_inputs() {
  const parallel::Comm& world = session_.world();
  parallel::run_on_root(world, [&] {
    check_inputs(options_.inputs);
    identity_ = job_identity(options_.identity, options_.inputs);
  });
  claim_.stage(identity_, world);
  announce(JobPhase::kIndexing);
  std::string bytes;
  int64_t stretches = 0;
  parallel::agree_on(world, [&] {
    if (world.rank() == 0) bytes = index_inputs([&] { activity_.progress(++stretches); }).serialize();
  });
  parallel::broadcast_bytes(world, bytes, 0);
  index_ = Index::deserialize(bytes);
  parallel::agree_on(world, [&] { index_.watch_files(); });
}

/// Collective: what rank 0 has read in the journal.
void Job::share_what_is_done() {
  const parallel::Comm& world = session_.world();
  before_ = parallel::gather_values(world, before_)[0];
  std::string partial = partial_.serialize();
  parallel::broadcast_bytes(world, partial, 0);
  partial_ = PartialRows::deserialize(partial);
  std::string refused = serialize(verdict_.refused);
  parallel::broadcast_bytes(world, refused, 0);
  verdict_.refused = deserialize_refused(refused);
}

/// On rank 0: the index, and plan_ on the way.
Index Job::index_inputs(std::function<void()> on_progress) {
  IndexOptions index_options{.reader = options_.reader,
                             .scratch_dir = claim_.staged_scratch_dir(),
                             .on_progress = std::move(on_progress)};
  RowPlanner planner({.spill_path = OutputDir::row_plan_path(index_options.scratch_dir)});
  if (options_.on_record || options_.prefix_bytes)
    index_options.on_record = [&](const IndexedRecord& record) {
      if (options_.on_record) options_.on_record(record.row, record.bytes);
      if (options_.prefix_bytes) planner.add(record.position, options_.prefix_bytes(record.bytes));
    };
  if (options_.on_indexing) options_.on_indexing(index_options.scratch_dir);
  Index index = build_index(options_.inputs, index_options);
  if (options_.on_indexed) options_.on_indexed();
  plan_ = options_.prefix_bytes ? planner.finish() : RowPlan(index.num_rows());
  plan_s_ = planner.seconds();
  return index;
}

/// On rank 0: what earlier runs have done.
void Job::read_journal() {
  done_ = RowSet(index_.num_rows());
  if (claim_.run() == 0) return;
  DoneRows rows = read_done_rows(with_advice([&] { return cut_torn_parts(output_); }), index_.num_rows());
  RowSet tried_again(index_.num_rows());
  if (options_.retry_errors) {
    rows.done.erase(rows.failed);
    tried_again = std::exchange(rows.failed, RowSet(index_.num_rows()));
  }
  before_ = {.done = rows.done.count(), .failed = rows.failed.count()};
  done_ = std::move(rows.done);
  if (!options_.accept_change) partial_ = std::move(rows.partial);  // half of an answer must not be another model's
  remove_idle_running(output_);
  verdict_ = judge_rows(read_deaths(output_), done_, tried_again);
  if (!verdict_.suspects.empty()) log::warning("{}", describe_suspects(verdict_.suspects));
}

/// On rank 0: their rows are not handed out.
void Job::leave_other_shards() {
  for (int64_t row = 0; row < rows_.begin; ++row) done_.insert(row);
  for (int64_t row = rows_.end; row < index_.num_rows(); ++row) done_.insert(row);
}

}  // namespace tokenmill::jobs
