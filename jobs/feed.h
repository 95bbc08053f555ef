#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "jobs/activity.h"
#include "jobs/bounded_queue.h"
#include "jobs/coordinator.h"
#include "jobs/generator.h"
#include "jobs/index.h"
#include "jobs/journal/partial_rows.h"
#include "jobs/row_verdict.h"

namespace tokenmill::jobs {

/// A row ready for the Generator.
struct EncodedRow {
  std::unique_ptr<WorkItem> item;
  uint64_t row_digest = 0;  ///< of the input record (journal/ledger.h)
};

struct FeedOptions {
  io::RecordReaderOptions reader;
  int64_t max_queued_rows = 64;
  int64_t max_queued_bytes = int64_t{16} << 20;  ///< of input records; a longer one passes alone
};

/// What a feed asks and tells its rank, on the feed's thread.
struct FeedHooks {
  std::function<std::optional<std::vector<RowRun>>()> pull;  ///< the next rows, nullopt: there will be none; may block
  std::function<void(const std::exception&)> on_error;       ///< once, when something throws there; the feed has ended
  const PartialRows* partial = nullptr;                      ///< what earlier runs saved; may be null
  const RefusedRows* refused = nullptr;                      ///< rows that become errors, uncomputed; may be null
  Activity* activity = nullptr;                              ///< says what it does; may be null
};

/// The thread that pulls rows, reads their records and encodes them, so that the step loop never waits for a
/// file or a tokenizer while rows are queued.
class Feed {
 public:
  /// index, codec and what hooks point to outlive the feed.
  Feed(const Index& index, const RowCodec& codec, const FeedOptions& options, FeedHooks hooks);
  /// Drops what is queued and waits for the thread: pull must return.
  ~Feed();

  /// A row if one is ready; never waits.
  std::optional<EncodedRow> try_take() { return queue_.try_pop(); }
  /// Waits up to timeout_s until a row is ready or the feed has ended.
  void wait(double timeout_s) { queue_.wait(timeout_s); }
  /// Nothing is queued and nothing will come.
  bool ended() const { return queue_.ended(); }

 private:
  void run();
  bool deliver(class RowReader& reader, const RowRun& run);
  EncodedRow encode(const RecordSource& source, std::string_view record);
  const Index& index_;
  const RowCodec& codec_;
  const FeedOptions options_;
  const FeedHooks hooks_;
  Activity unwatched_;
  Activity& activity_;
  BoundedQueue<EncodedRow> queue_;
  double pulled_s_ = 0;  // the thread's: when the rows it reads were pulled
  std::thread thread_;
};

}  // namespace tokenmill::jobs
