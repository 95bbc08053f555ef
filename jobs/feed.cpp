#include "jobs/feed.h"

#include "jobs/death_note.h"
#include "jobs/journal/ledger.h"
#include "jobs/row_reader.h"
#include "kernels/core/check.h"
#include "kernels/core/clock.h"

namespace tokenmill::jobs {

Feed::Feed(const Index& index, const RowCodec& codec, const FeedOptions& options, FeedHooks hooks)
    : index_(index),
      codec_(codec),
      options_(options),
      hooks_(std::move(hooks)),
      activity_(hooks_.activity != nullptr ? *hooks_.activity : unwatched_),
      queue_(options.max_queued_rows, options.max_queued_bytes),
      thread_([this] { run(); }) {}

Feed::~Feed() {
  queue_.close();
  thread_.join();
}

void Feed::run() {
  const DeathNote::SpareStack stack;
  try {
    RowReader reader(index_, options_.reader);
    bool wanted = true;
    while (wanted) {
      const std::optional<std::vector<RowRun>> runs = hooks_.pull();
      if (!runs) break;
      pulled_s_ = SteadyClock().now_s();
      for (size_t i = 0; wanted && i < runs->size(); ++i) wanted = deliver(reader, (*runs)[i]);
    }
    reader.check_unchanged();
  } catch (const std::exception& e) {
    hooks_.on_error(e);
  }
  queue_.close();
}

/// False when nobody wants rows any more.
bool Feed::deliver(RowReader& reader, const RowRun& run) {
  for (int64_t row = run.rows.begin; row < run.rows.end; ++row) {
    RecordSource source;
    std::string_view record;
    {
      const Activity::Scope scope(activity_, "reading row", row);
      record = row == run.rows.begin ? reader.read(row, source, run.position) : reader.read(row, source);
    }
    if (!queue_.push(encode(source, record), static_cast<int64_t>(record.size()))) return false;
  }
  return true;
}

EncodedRow Feed::encode(const RecordSource& source, std::string_view record) {
  const Activity::Scope scope(activity_, Activity::kEncoding, source.row);
  EncodedRow encoded{.row_digest = digest(record)};
  if (hooks_.refused != nullptr)
    if (const auto refused = hooks_.refused->find(source.row); refused != hooks_.refused->end())
      encoded.item = codec_.refuse(source, record, refused->second);
  if (!encoded.item) {
    const DeathNote::OneRow one_row(source.row);
    encoded.item = codec_.encode(source, record);
    if (hooks_.partial != nullptr)
      if (const auto saved = hooks_.partial->read(source.row, encoded.row_digest)) codec_.resume(*encoded.item, *saved);
  }
  TM_ASSERT(encoded.item && encoded.item->row() == source.row, "the codec made no work item for row {}", source.row);
  encoded.item->pulled_s = pulled_s_;
  return encoded;
}

}  // namespace tokenmill::jobs
