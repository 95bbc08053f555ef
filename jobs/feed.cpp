#include "jobs/feed.h"

#include "jobs/journal/ledger.h"
#include "jobs/row_reader.h"
#include "kernels/core/check.h"
#include "kernels/core/clock.h"

namespace tokenmill::jobs {

Feed::Feed(const Index& index, const RowCodec& codec, const FeedOptions& options,
           std::function<std::optional<std::vector<RowRun>>()> pull,
           std::function<void(const std::exception&)> on_error, const PartialRows* partial)
    : index_(index),
      codec_(codec),
      options_(options),
      pull_(std::move(pull)),
      on_error_(std::move(on_error)),
      partial_(partial),
      queue_(options.max_queued_rows, options.max_queued_bytes),
      thread_([this] { run(); }) {}

Feed::~Feed() {
  queue_.close();
  thread_.join();
}

void Feed::run() {
  try {
    RowReader reader(index_, options_.reader);
    bool wanted = true;
    while (wanted) {
      const std::optional<std::vector<RowRun>> runs = pull_();
      if (!runs) break;
      pulled_s_ = SteadyClock().now_s();
      for (size_t i = 0; wanted && i < runs->size(); ++i) wanted = deliver(reader, (*runs)[i]);
    }
    reader.check_unchanged();
  } catch (const std::exception& e) {
    on_error_(e);
  }
  queue_.close();
}

/// False when nobody wants rows any more.
bool Feed::deliver(RowReader& reader, const RowRun& run) {
  for (int64_t row = run.rows.begin; row < run.rows.end; ++row) {
    RecordSource source;
    const std::string_view record =
        row == run.rows.begin ? reader.read(row, source, run.position) : reader.read(row, source);
    EncodedRow encoded{.item = codec_.encode(source, record), .row_digest = digest(record)};
    TM_ASSERT(encoded.item && encoded.item->row() == row, "the codec made no work item for row {}", row);
    if (partial_ != nullptr)
      if (const auto saved = partial_->read(row, encoded.row_digest)) codec_.resume(*encoded.item, *saved);
    encoded.item->pulled_s = pulled_s_;
    if (!queue_.push(std::move(encoded), static_cast<int64_t>(record.size()))) return false;
  }
  return true;
}

}  // namespace tokenmill::jobs
