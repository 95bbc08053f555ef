#include "app/row_check.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "jobs/row_reader.h"
#include "kernels/core/check.h"

namespace tokenmill::app {
namespace {

constexpr int64_t kRowsPerEngine = 256;  // an engine keeps what it accepts: rows are forgotten with it

/// A replica's limits, for an engine that is never stepped.
class NeverRuns final : public Runner {
 public:
  explicit NeverRuns(const RunnerLimits& limits) : limits_(limits) {}
  const RunnerLimits& limits() const override { return limits_; }
  Ticket launch(const StepPlan&) override { TM_ASSERT(false, "a row that is only checked was scheduled"); }
  StepResult collect(Ticket) override { TM_ASSERT(false, "a row that is only checked was scheduled"); }

 private:
  const RunnerLimits& limits_;
};

class RowCheck {
 public:
  RowCheck(const text::Tokenizer& tokenizer, const RunnerLimits& limits, const EngineOptions& options,
           size_t max_errors)
      : tokenizer_(tokenizer), limits_(limits), runner_(limits), options_(options), max_errors_(max_errors) {}

  void add(rows::RowItem& row) {
    if (findings_.num_rows++ % kRowsPerEngine == 0) engine_ = std::make_unique<Engine>(runner_, &tokenizer_, options_);
    if (row.error) return fail(row.error->message);
    if (!row.skipped.empty()) {
      ++findings_.num_skipped;
      return;
    }
    const auto prompt_tokens = static_cast<int64_t>(row.request.prompt_token_ids.size());
    const int64_t room = std::max<int64_t>(0, limits_.max_model_len - prompt_tokens);
    const SamplingParams& sampling = row.request.sampling;
    const int64_t new_tokens = sampling.n * std::min(room, sampling.max_tokens.value_or(room));
    engine_->submit(std::move(row.request));
    for (const RequestOutput& output : engine_->take_finished())
      if (output.error) return fail(row.place + ": " + output.error->message);
    ++findings_.num_runnable;
    findings_.prompt_tokens += prompt_tokens;
    findings_.longest_prompt = std::max(findings_.longest_prompt, prompt_tokens);
    findings_.most_new_tokens += new_tokens;
  }
  RowFindings take() { return std::move(findings_); }

 private:
  void fail(std::string message) {
    ++findings_.num_failed;
    if (findings_.first_errors.size() < max_errors_) findings_.first_errors.push_back(std::move(message));
  }

  const text::Tokenizer& tokenizer_;
  const RunnerLimits& limits_;
  NeverRuns runner_;
  const EngineOptions& options_;
  size_t max_errors_;
  std::unique_ptr<Engine> engine_;
  RowFindings findings_;
};

}  // namespace

RowFindings check_rows(const jobs::Index& index, const io::RecordReaderOptions& reader_options,
                       const rows::Codec& codec, const text::Tokenizer& tokenizer, const RunnerLimits& limits,
                       const EngineOptions& engine, size_t max_errors) {
  RowCheck check(tokenizer, limits, engine, max_errors);
  jobs::RowReader reader(index, reader_options);
  for (int64_t row = 0; row < index.num_rows(); ++row) {
    jobs::RecordSource source;
    const std::string_view record = reader.read(row, source);
    const std::unique_ptr<jobs::WorkItem> item = codec.encode(source, record);
    check.add(dynamic_cast<rows::RowItem&>(*item));
  }
  return check.take();
}

}  // namespace tokenmill::app
