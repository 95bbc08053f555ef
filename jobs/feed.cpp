#include "jobs/feed.h"

#include "jobs/journal/ledger.h"
#include "jobs/row_reader.h"
#include "kernels/core/check.h"

namespace tokenmill::jobs {

Feed::Feed(const Index& index, const RowCodec& codec, const FeedOptions& options,
           std::function<std::optional<RowRange>()> pull, std::function<void(const std::exception&)> on_error)
    : index_(index),
      codec_(codec),
      options_(options),
      pull_(std::move(pull)),
      on_error_(std::move(on_error)),
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
      const std::optional<RowRange> rows = pull_();
      if (!rows) break;
      for (int64_t row = rows->begin; wanted && row < rows->end; ++row) wanted = deliver(reader, row);
    }
  } catch (const std::exception& e) {
    on_error_(e);
  }
  queue_.close();
}

/// False when nobody wants rows any more.
bool Feed::deliver(RowReader& reader, int64_t row) {
  RecordSource source;
  const std::string_view record = reader.read(row, source);
  EncodedRow encoded{.item = codec_.encode(source, record), .row_digest = digest(record)};
  TM_ASSERT(encoded.item && encoded.item->row() == row, "the codec made no work item for row {}", row);
  return queue_.push(std::move(encoded), static_cast<int64_t>(record.size()));
}

}  // namespace tokenmill::jobs
