#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/agreement.h"
#include "app/build.h"
#include "app/chat.h"
#include "app/commands/commands.h"
#include "app/exit_codes.h"
#include "app/generator.h"
#include "app/iteration_log.h"
#include "app/metrics_file.h"
#include "app/progress_view.h"
#include "app/prometheus.h"
#include "app/ranks.h"
#include "app/report_files.h"
#include "app/report_sections.h"
#include "app/row_defaults.h"
#include "app/row_metrics.h"
#include "app/rows/id_census.h"
#include "app/rows/scan.h"
#include "app/version.h"
#include "jobs/job.h"
#include "kernels/core/log.h"

namespace tokenmill::app {
namespace {

/// The text side of a job: the same on every rank.
struct TextSide {
  TokenizerSource source;
  std::optional<text::ChatTemplate> chat_template;
  rows::ChatRenderer render_chat;  ///< refers to chat_template
  rows::ThinkingMarkers thinking;
};

std::unique_ptr<TextSide> load_text_side(const RunOptions& options) {
  auto side = std::make_unique<TextSide>(TextSide{load_tokenizer(options.model), std::nullopt, {}, {}});
  std::string missing =
      "messages are given and the model has no chat template; give prompt, or run with --chat-template";
  try {
    side->chat_template = load_chat_template(side->source, options.chat_template);
  } catch (const Error& error) {
    if (!options.chat_template.empty()) throw;
    // Plain prompts run all the same; each chat row gets this as its error.
    log::warning("rows with messages will be error rows: {}", error.what());
    missing = error.what();
  }
  side->render_chat = make_chat_renderer(side->chat_template ? &*side->chat_template : nullptr, std::move(missing),
                                         side->source.special_tokens, options.date);
  side->thinking = rows::find_thinking_markers(side->source.tokenizer, options.think_start, options.think_end);
  return side;
}

/// Ids below it have a token: the output layer may be padded beyond the vocabulary, and the vocabulary may be larger.
int64_t num_named_ids(const Replica& replica, const text::Tokenizer& tokenizer) {
  return std::min<int64_t>(replica.model->config().vocab_size, tokenizer.vocab_size());
}

/// The last part of --model.
std::string model_name(const RunOptions& options) {
  std::string model = options.model;
  while (model.size() > 1 && model.ends_with('/')) model.pop_back();
  return model.substr(model.rfind('/') + 1);
}

rows::CodecOptions codec_options(const RunOptions& options, const Replica& replica, const TextSide& text,
                                 rows::RowSettings defaults, std::unordered_map<int64_t, int64_t> repeated_custom_ids) {
  return {.defaults = std::move(defaults),
          .vocab_size = num_named_ids(replica, text.source.tokenizer),
          .max_model_len = replica.max_model_len,
          .max_logprobs = options.max_logprobs,
          .overlong = options.overlong,
          .thinking = text.thinking,
          .seed = options.seed,
          .passthrough = options.passthrough,
          .max_record_bytes = options.max_record_bytes,
          .openai = {model_name(options), source_date_epoch()},
          .repeated_custom_ids = std::move(repeated_custom_ids)};
}

void print_banner(const RunOptions& options, const Ranks& ranks, const Replica& replica, const std::string& mpi) {
  const ModelConfig& config = replica.model->config();
  log::info("tokenmill {} | {} | {}", kVersion, mpi, describe(ranks));
  log::info("model {} | {}, {:.1f} M parameters, {}, up to {} tokens a row", options.model, config.architecture,
            static_cast<double>(replica.num_parameters) / 1e6, to_string(replica.dtype),
            format_count(replica.max_model_len));
  log::info("device {} per rank | {}", replica.ops->describe(), replica.memory.describe());
  if (!replica.dtype_note.empty()) log::warning("{}", replica.dtype_note);
}

void print_summary(const RunOptions& options, const jobs::JobOutcome& outcome) {
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
  log::info("results: {0}/output.jsonl | figures: {0}/run.yaml", options.output);
}

/// Sends what the census found to every rank and says what is worth a warning.
std::unordered_map<int64_t, int64_t> share_census(const rows::IdCensus& census, const parallel::Comm& world) {
  if (census.num_repeated_ids() > 0)
    log::warning("{} rows have the id of an earlier row; equal ids with equal prompts get equal random streams",
                 format_count(census.num_repeated_ids()));
  if (!census.complete()) log::warning("the job has too many ids to compare them all: repeated ones may be missed");
  std::string bytes = world.rank() == 0 ? census.serialize() : "";
  parallel::broadcast_bytes(world, bytes, 0);
  return rows::IdCensus::deserialize(bytes);
}

/// Collective: says how many prompts --overlong changed.
void warn_of_overlong(const rows::Codec& codec, const parallel::Comm& world) {
  int64_t num_truncated = 0, num_skipped = 0;
  const std::string mine = fmt::format("{} {}", codec.num_truncated(), codec.num_skipped());
  for (const std::string& theirs : parallel::gather_bytes(world, mine)) {
    const size_t space = theirs.find(' ');
    num_truncated += std::stoll(theirs.substr(0, space));
    num_skipped += std::stoll(theirs.substr(space + 1));
  }
  if (world.rank() != 0) return;
  if (num_truncated > 0)
    log::warning("{} prompts were longer than the model's length and were cut (--overlong)",
                 format_count(num_truncated));
  if (num_skipped > 0)
    log::warning("{} rows were skipped: their prompts are longer than the model's length (--overlong)",
                 format_count(num_skipped));
}

/// The files that --metrics-file (rank 0) and --iteration-log (every rank) name, written while the job runs.
class FigureFiles {
 public:
  /// Before the job claims its directory: a path that cannot be written leaves no journal behind.
  FigureFiles(const RunOptions& options, int64_t max_model_len, const parallel::Comm& world)
      : model_(model_name(options)), max_model_len_(max_model_len), has_metrics_(!options.metrics_file.empty()) {
    parallel::run_on_root(world, [&] {
      if (has_metrics_ || !options.iteration_log.empty()) jobs::OutputDir(options.output).make();
      if (has_metrics_) metrics_.emplace(options.metrics_file, text({}));
    });
    parallel::agree_on(world, [&] {
      if (!options.iteration_log.empty()) iterations_.emplace(options.iteration_log, world.rank(), world.size());
    });
  }

  jobs::MetricsCallback on_metrics() {
    if (!has_metrics_) return nullptr;
    return [this](const jobs::JobMetrics& metrics) { metrics_->replace(text(metrics)); };
  }
  std::function<void(const StepRecord&)> on_step() { return step_listener(iterations_); }

  void finish(const jobs::JobMetrics& last, const parallel::Comm& world) {
    if (metrics_) metrics_->replace(text(last));
    parallel::agree_on(world, [&] {
      if (iterations_) iterations_->close();
    });
  }

 private:
  std::string text(const jobs::JobMetrics& metrics) const { return prometheus_text(metrics, model_, max_model_len_); }

  std::string model_;
  int64_t max_model_len_;
  bool has_metrics_;
  std::optional<MetricsFile> metrics_;
  std::optional<IterationLog> iterations_;
};

jobs::JobOptions job_options(const RunOptions& options, const Ranks& ranks, rows::IdCensus& census,
                             jobs::MetricsCallback on_metrics) {
  return {.leaders = ranks.groups.leaders,
          .inputs = options.input,
          .output_dir = options.output,
          .restart = options.restart,
          .protected_paths = files_in_use(options),
          .reader = {.max_record_bytes = options.max_record_bytes},
          .on_record = [&census](int64_t row, std::string_view record) { census.add(row, record); },
          .prefix_bytes = rows::prompt_bytes,
          .busy_rows = options.max_num_seqs,
          .queued_rows = 2 * options.max_num_seqs,
          .on_metrics = std::move(on_metrics)};
}

}  // namespace

int run_job(RunOptions options, parallel::MpiSession& session) {
  const parallel::Comm& world = session.world();
  parallel::agree_on(world, [&] {
    finish_options(options, "run", world.size());
    options.date = job_date(options);
  });
  parallel::broadcast_bytes(world, options.date, 0);
  const Ranks ranks = join_ranks(options, world);
  options.cpu_isa = common_cpu_isa(options, world);
  // Early: a model may take minutes to load.
  parallel::run_on_root(world, [&] { jobs::check_output_free(jobs::OutputDir(options.output), options.restart); });

  const std::unique_ptr<TextSide> text = parallel::agree_on(world, [&] { return load_text_side(options); });
  const std::unique_ptr<Replica> replica =
      parallel::agree_on(world, [&] { return build_replica(options, ranks.share); });
  const rows::RowSettings defaults = parallel::agree_on(world, [&] {
    return row_defaults(options, *replica->checkpoint, num_named_ids(*replica, text->source.tokenizer));
  });
  const JobFacts facts = parallel::agree_on(world, [&] { return job_facts(options, *replica); });
  agree_on_facts(facts, world);
  if (world.rank() == 0) print_banner(options, ranks, *replica, session.library_version());

  FigureFiles figures(options, replica->max_model_len, world);
  ProgressView view;
  rows::IdCensus census;
  jobs::Job job(job_options(options, ranks, census, figures.on_metrics()), session,
                [&](const jobs::JobProgress& progress) { view.show(progress); });
  view.finish();
  log::info("rows {} in {} file{} | seed {}, date {} | output {}", format_count(job.num_rows()), options.input.size(),
            options.input.size() == 1 ? "" : "s", options.seed, options.date, options.output);

  const rows::Codec codec(text->source.tokenizer, text->render_chat,
                          codec_options(options, *replica, *text, defaults, share_census(census, world)));
  census = rows::IdCensus();  // as large as the job: not kept while it runs
  Engine engine(*replica->runner, &text->source.tokenizer,
                {.scheduler = options.scheduler,
                 .eos_token_ids = replica->checkpoint->eos_token_ids(),
                 .on_step = figures.on_step()});
  EngineGenerator generator(
      engine, codec,
      {.max_num_seqs = options.max_num_seqs, .window_rows = options.plan_window_rows, .dedup = options.dedup});
  std::optional<RowMetrics> metrics;
  parallel::agree_on(world, [&] {
    if (options.row_metrics) metrics.emplace(options.output, world.rank());
  });
  if (metrics)
    generator.on_finished(
        [&](const rows::RowItem& item, const RequestOutput& output) { metrics->add(item.row(), output); });
  const jobs::JobOutcome outcome = job.run(codec, generator);
  view.finish();
  figures.finish(outcome.metrics(), world);
  if (metrics) metrics->finish(world);
  job.write_report(report_sections(options, ranks, *replica, session.library_version()), outcome);
  warn_of_overlong(codec, world);
  if (world.rank() == 0) print_summary(options, outcome);
  return options.max_row_errors.allows(outcome.failed, outcome.rows) ? kExitDone : kExitRowErrors;
}

}  // namespace tokenmill::app
