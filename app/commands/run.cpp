#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "app/agreement.h"
#include "app/build.h"
#include "app/commands/commands.h"
#include "app/exit_codes.h"
#include "app/figure_files.h"
#include "app/generator.h"
#include "app/output_files.h"
#include "app/progress_view.h"
#include "app/rank_figures.h"
#include "app/rank_map.h"
#include "app/ranks.h"
#include "app/report_files.h"
#include "app/report_sections.h"
#include "app/row_metrics.h"
#include "app/rows/id_census.h"
#include "app/rows/joined_tables.h"
#include "app/rows/scan.h"
#include "app/stage_in.h"
#include "app/text_side.h"
#include "app/time_limit.h"
#include "app/version.h"
#include "jobs/activity.h"
#include "jobs/job.h"
#include "jobs/watchdog.h"
#include "kernels/core/clock.h"
#include "kernels/core/log.h"
#include "kernels/core/stopwatch.h"
#include "kernels/device_choice.h"

namespace tokenmill::app {
namespace {

/// all: by world rank.
void print_banner(const RunOptions& options, const Ranks& ranks, const Replica& replica, const TextSide& text,
                  const std::vector<RankFigures>& all, const std::string& mpi) {
  constexpr size_t kMostLines = 32;  // of the printed map
  const ModelChoice& choice = replica.choice;
  log::info("tokenmill {} | {}, {} | {}", kVersion, mpi, describe_cuda_build(), describe_grid(ranks.topology, ranks.groups.grid));
  log::info("model {} | {}, {:.1f} M parameters, {}, up to {} tokens a row", options.model,
            choice.checkpoint->config().architecture, static_cast<double>(replica.plan.builder->num_parameters()) / 1e6,
            to_string(choice.dtype), format_count(choice.max_model_len));
  if (ranks.topology.ranks.size() > 1)
    for (const std::string& line : describe_map(ranks.topology, ranks.groups.grid, replica.stages,
                                               {to_string(replica.ops->device().kind), options.threads}, kMostLines))
      log::info("{}", line);
  log::info("device {} per rank | {}", replica.ops->describe(), replica.plan.memory.describe());
  for (const std::string& line : describe_memory(all)) log::info("{}", line);
  if (!choice.dtype_note.empty()) log::warning("{}", choice.dtype_note);
  if (!text.template_note.empty()) log::warning("rows with messages will be error rows: {}", text.template_note);
}

void print_stop(const RunOptions& options, const jobs::JobOutcome& outcome) {
  log::info("stopped {} after {}: {} of {} rows are done, {} were saved unfinished; the same command goes on",
            outcome.stopped == jobs::StopCause::kTime ? "before the time limit" : "by a signal",
            format_duration(outcome.elapsed_s), format_count(outcome.done), format_count(outcome.rows),
            format_count(outcome.saved));
  log::info("finished rows: {0}/journal | figures: {0}/run.yaml", options.output);
}

void print_summary(const RunOptions& options, const jobs::JobOutcome& outcome) {
  if (outcome.stopped != jobs::StopCause::kNone) return print_stop(options, outcome);
  const jobs::GeneratorStats totals = outcome.totals();
  const auto rate = [&](int64_t count) {
    return format_count(outcome.run_s > 0 ? std::llround(static_cast<double>(count) / outcome.run_s) : 0);
  };
  log::info(
      "done: {} of {} rows answered, {} with errors | prompt {} tokens ({} tok/s), generation {} tokens ({} tok/s) | "
      "{}",
      format_count(outcome.rows - outcome.failed), format_count(outcome.rows), format_count(outcome.failed),
      format_count(totals.prompt_tokens), rate(totals.prompt_tokens), format_count(totals.generation_tokens),
      rate(totals.generation_tokens), format_duration(outcome.elapsed_s));
  const std::string results = fmt::format("{}{}{}", options.output_jsonl ? options.output + "/output.jsonl" : "",
                                          options.output_jsonl && options.output_hdf5 ? ", " : "",
                                          options.output_hdf5 ? options.output + "/output.h5" : "");
  log::info("results: {} | figures: {}/run.yaml", results, options.output);
}

/// Sends what the census found to every rank and says what is worth a warning.
std::unordered_map<int64_t, int64_t> share_census(const rows::IdCensus& census, const parallel::Comm& world) {
  if (census.num_repeated_ids() > 0)
    log::warning("{} rows have the id of an earlier row; equal ids with equal prompts get equal random streams",
                 format_count(census.num_repeated_ids()));
  std::string bytes = world.rank() == 0 ? census.serialize() : "";
  parallel::broadcast_bytes(world, bytes, 0);
  return rows::IdCensus::deserialize(bytes);
}

/// Collective: says how many prompts --overlong changed; codec: nullptr on ranks that lead nothing.
void warn_of_overlong(const rows::Codec* codec, const parallel::Comm& world) {
  struct Counts {
    int64_t truncated = 0, cut_to_one = 0, skipped = 0;
  } mine, all;
  if (codec != nullptr) mine = {codec->num_truncated(), codec->num_cut_to_one(), codec->num_skipped()};
  for (const Counts& theirs : parallel::gather_values(world, mine)) {
    all.truncated += theirs.truncated;
    all.cut_to_one += theirs.cut_to_one;
    all.skipped += theirs.skipped;
  }
  if (world.rank() != 0) return;
  if (all.truncated > 0)
    log::warning("{} prompts were longer than the model's length and were cut (--overlong)",
                 format_count(all.truncated));
  if (all.cut_to_one > 0)
    log::warning("{} of them were cut to one token: their max_tokens leave no more of the model's length; lower it",
                 format_count(all.cut_to_one));
  if (all.skipped > 0)
    log::warning("{} rows were skipped: their prompts are longer than the model's length (--overlong)",
                 format_count(all.skipped));
}

/// What the merge writes besides lines. files outlives it, as below.
jobs::MakeOutputs tables(const OutputFiles& files) {
  if (!files.tables) return {};
  return [&files](const jobs::OutputDir& directory) {
    jobs::MergeOutputs outputs;
    outputs.push_back(files.make_tables(directory.hdf5_path()));
    return outputs;
  };
}

/// What may end the run before its rows are done.
struct StopConditions {
  jobs::WalltimeOptions walltime;
  jobs::StopSignals& signals;
  std::function<void()> end_now;
};

/// The same of each rank's share of the rows, and output.h5, which shows them as one.
std::optional<jobs::PartOutputs> tables_in_parts(const RunOptions& options, const OutputFiles& files) {
  if (!options.output_in_parts) return std::nullopt;
  const auto make = [&files](const std::string& stem) {
    jobs::MergeOutputs outputs;
    outputs.push_back(files.make_tables(stem + ".h5"));
    if (files.lines) outputs.push_back(std::make_unique<io::LineWriter>(stem + ".jsonl"));
    return outputs;
  };
  const auto join = [&](const std::vector<std::string>& stems) {
    const jobs::OutputDir directory(options.output);
    std::vector<std::string> parts;
    for (const std::string& stem : stems)
      parts.push_back(std::filesystem::path(stem + ".h5").lexically_relative(directory.path()).string());
    rows::join_tables(directory.hdf5_path(), parts, files.attributes);
  };
  return jobs::PartOutputs{make, join};
}

jobs::JobOptions job_options(const RunOptions& options, const OutputFiles& files, const Ranks& ranks,
                             const Replica& replica, rows::IdCensus& census, jobs::MetricsCallback on_metrics,
                             const StopConditions& stop, const jobs::Predecessor& predecessor) {
  return {.leaders = ranks.groups.leaders,
          .replica = ranks.groups.place.dp_rank,
          .inputs = options.input,
          .output_dir = options.output,
          .shard = options.shard,
          .restart = options.restart,
          .accept_change = options.accept_change,
          .retry_errors = options.retry_errors,
          .identity = identity_facts(replica.facts),
          .protected_paths = files_in_use(options),
          .reader = {.max_record_bytes = options.max_record_bytes, .ids_dataset = options.input_ids},
          .on_indexing = [&census](const std::string& scratch_dir) { census.begin(scratch_dir); },
          .on_record = [&census](int64_t row, std::string_view record) { census.add(row, record); },
          .on_indexed = [&census] { census.finish(); },
          .prefix_bytes = rows::prompt_bytes,
          .busy_rows = options.max_num_seqs,
          .queued_rows = 2 * options.max_num_seqs,
          .outputs = tables(files),
          .output_lines = files.lines,
          .part_outputs = tables_in_parts(options, files),
          .outputs_note = files.note(),
          .has_attachments = files.hidden_columns > 0,
          .commit_s = options.commit_seconds,
          .durability = options.durability,
          .on_metrics = std::move(on_metrics),
          .stall_s = options.stall_seconds,
          .waits_in = [&progress = replica.progress] { return progress.waits_in(); },
          .walltime = stop.walltime,
          .signals = &stop.signals,
          .end_now = stop.end_now,
          .predecessor = predecessor};
}

/// Hands every step on; first_step_s: when the results of the first one were there, on the steady clock.
std::function<void(const StepRecord&)> watch_first_step(std::optional<double>& first_step_s,
                                                        std::function<void(const StepRecord&)> on_step) {
  return [&first_step_s, on_step = std::move(on_step)](const StepRecord& step) {
    if (!first_step_s) first_step_s = step.launched_s + step.device_s;
    if (on_step) on_step(step);
  };
}

/// A leader's rows, from the job through the engine and back.
jobs::JobOutcome lead(jobs::Job& job, const RunOptions& options, Replica& replica, const TextSide& text,
                      const rows::Codec& codec, std::function<void(const StepRecord&)> on_step, RowMetrics* metrics) {
  Engine engine(replica.steps(), &text.source.tokenizer,
                {.scheduler = options.scheduler,
                 .eos_token_ids = replica.choice.checkpoint->eos_token_ids(),
                 .on_step = std::move(on_step)});
  EngineGenerator generator(
      engine, codec,
      {.max_num_seqs = options.max_num_seqs, .window_rows = options.plan_window_rows, .dedup = options.dedup});
  generator.at_end([&] { replica.stop_followers(); });
  if (metrics != nullptr)
    generator.on_finished(
        [&](const rows::RowItem& item, const RequestOutput& output) { metrics->add(item.row(), output); });
  return job.run(codec, generator);
}

/// Options that need the ranks: the same on all of them when it returns.
Ranks prepare(RunOptions& options, const parallel::Comm& world) {
  parallel::agree_on(world, [&] {
    finish_options(options, "run", world.size());
    options.date = job_date(options);
  });
  parallel::broadcast_bytes(world, options.date, 0);
  Ranks ranks = join_ranks(options, world);
  options.cpu_isa = common_cpu_isa(options, world);
  return ranks;
}

/// Collective: work(activity) on every rank, ended by --stall-seconds when a rank is gone or none gets on, such as with
/// a file system that does not answer. must_end: no; then only ranks that are gone count.
template <typename Work>
void watch(parallel::MpiSession& session, double stall_s, const char* what, bool must_end, Work&& work) {
  jobs::Activity activity;
  std::optional<jobs::Activity::Scope> scope;
  if (must_end) scope.emplace(activity, what, 0);
  jobs::watch_together(session, stall_s, activity, [&] { work(activity); });
}

}  // namespace

int run_job(RunOptions options, parallel::MpiSession& session, jobs::StopSignals& signals) {
  const double start_s = SteadyClock().now_s();
  const parallel::Comm& world = session.world();
  signals.handle([&](jobs::StopLevel) {
    log::info("stopped by a signal before the first row; the same command goes on");
    session.end_now(kExitStopped);
  });
  const Ranks ranks = prepare(options, world);
  const jobs::WalltimeOptions walltime = parallel::agree_on(
      world, [&] { return walltime_options(options, start_s, TwoClocks::now(), std::getenv("SLURM_JOB_END_TIME")); });
  double stage_s = 0;
  if (!options.stage_dir.empty()) {
    const Stopwatch stopwatch(stage_s);
    watch(session, options.stall_seconds, "copying the model, chunk", true, [&](jobs::Activity& activity) {
      int64_t chunks = 0;
      stage_model(options, ranks, world, [&] { activity.progress(++chunks); });
    });
  }
  std::unique_ptr<Replica> replica;
  watch(session, options.stall_seconds, "reading the model, part", true,
        [&](jobs::Activity&) { replica = plan_replica(options, ranks, world); });
  if (!options.stage_dir.empty()) replica->startup_seconds.emplace(replica->startup_seconds.begin(), "stage", stage_s);
  // Early: a model may take minutes to load, and memory that a run which lives there needs.
  jobs::Predecessor predecessor;
  watch(session, options.stall_seconds, "reading inputs and results, part", true, [&](jobs::Activity&) {
    parallel::run_on_root(world, [&] { check_results(options, replica->facts); });
  });
  parallel::run_on_root(world, [&] {
    predecessor.wait_until_over(jobs::OutputDir(options.output));
    try_report_files(options, "run", ranks.groups.grid.dp);
  });
  const std::unique_ptr<TextSide> text =
      parallel::agree_on(world, [&] { return ranks.leads() ? load_text_side(options, replica->choice) : nullptr; });
  // How long a cache takes to read is not known.
  watch(session, options.stall_seconds, "loading weights, chunk", options.weight_cache.empty(),
        [&](jobs::Activity& activity) {
          std::atomic<int64_t> chunks = 0;
          load_replica(options, *replica, ranks, world, [&] { activity.progress(++chunks); });
        });
  const std::vector<RankFigures> at_start = parallel::gather_values(world, rank_figures(options, *replica, ranks));
  if (world.rank() == 0) print_banner(options, ranks, *replica, *text, at_start, session.library_version());

  FigureFiles figures(options, replica->choice.max_model_len, ranks, world);
  ProgressView view;
  rows::IdCensus census;
  const OutputFiles output_files = OutputFiles::of(options, replica->choice.checkpoint->config().hidden_size);
  jobs::Job job(job_options(options, output_files, ranks, *replica, census, figures.on_metrics(),
                            {walltime, signals, [&] { session.end_now(kExitStopped); }}, predecessor),
                session, [&](const jobs::JobProgress& progress) { view.show(progress); });
  view.finish();
  if (job.before().done > 0)
    log::info("continuing: {} of {} rows are done ({} with errors)", format_count(job.before().done),
              format_count(job.num_rows()), format_count(job.before().failed));
  log::info("rows {} in {} file{} | seed {}, date {} | output {}", format_count(job.num_rows()), options.input.size(),
            options.input.size() == 1 ? "" : "s", options.seed, options.date, options.output);
  std::unordered_map<int64_t, int64_t> repeated = share_census(census, world);

  std::optional<rows::Codec> codec;  // of leaders, as the metrics
  std::optional<RowMetrics> metrics;
  parallel::agree_on(world, [&] {
    if (!ranks.leads()) return;
    codec.emplace(text->source.tokenizer, text->render_chat,
                  codec_options(options, replica->choice, *text, std::move(repeated)));
    if (options.row_metrics) metrics.emplace(options.output, ranks.groups.place.dp_rank, world.rank());
  });
  std::optional<double> first_step_s;
  const jobs::JobOutcome outcome =
      ranks.leads() ? lead(job, options, *replica, *text, *codec, watch_first_step(first_step_s, figures.on_step()),
                           metrics ? &*metrics : nullptr)
                    : job.follow([&] { replica->follow(); });
  replica->startup_seconds.emplace_back("index", outcome.index_s);
  if (first_step_s) replica->startup_seconds.emplace_back("to_first_step", *first_step_s - start_s);
  view.finish();
  figures.finish(outcome.metrics(), world);
  parallel::agree_on(world, [&] {
    if (metrics) metrics->close();
  });
  parallel::run_on_root(world, [&] {
    if (options.row_metrics) RowMetrics::merge(options.output);
  });
  const std::vector<RankFigures> all = parallel::gather_values(world, rank_figures(options, *replica, ranks));
  const jobs::GeneratorStats totals = outcome.totals();
  job.write_report(report_sections(options, ranks, *replica, session.library_version(), all,
                                   {.device_s = totals.device_s, .num_steps = totals.steps}),
                   outcome);
  warn_of_overlong(codec ? &*codec : nullptr, world);
  if (world.rank() == 0) print_summary(options, outcome);
  if (outcome.stopped != jobs::StopCause::kNone) return kExitStopped;
  return options.max_row_errors.allows(outcome.failed, outcome.rows) ? kExitDone : kExitRowErrors;
}

}  // namespace tokenmill::app
