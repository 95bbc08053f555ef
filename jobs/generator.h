#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/core/distributions.h"

namespace tokenmill::jobs {

/// Where a record came from.
struct RecordSource {
  int64_t row = 0;        ///< 0-based over all inputs of the job
  std::string_view file;  ///< as given by the user
  int64_t line = 0;       ///< 1-based in that file
  /// Set when the record's bytes were not read (longer than the limit): its length; the record view is empty then.
  int64_t oversized_bytes = 0;
  std::string_view oversized_prefix = {};  ///< the beginning of such a record, to tell whose it is; else empty
};

/// An encoded row on its way through a Generator: made by RowCodec::encode, opaque to jobs.
class WorkItem {
 public:
  explicit WorkItem(int64_t row) : row_(row) {}
  virtual ~WorkItem() = default;
  int64_t row() const { return row_; }
  /// When the replica pulled the row, on kernels/core/clock: set by the feed, before the record is read.
  double pulled_s = 0;

 private:
  int64_t row_;
};

/// A row's final result, ready to be written: exactly one per row.
struct FinishedRow {
  int64_t row = 0;
  std::string record;   ///< one output line without its newline
  bool failed = false;  ///< the record carries an error
  std::string attachment = {};  ///< bytes that go with the line to the job's outputs and are no text
};

/// What an unfinished row had come to, for the next run to go on from.
struct PartialRow {
  int64_t row = 0;
  std::string record;  ///< one line without its newline; the Generator's own words
};

/// Turns records into work. Thread-safe: encode runs on reader threads.
class RowCodec {
 public:
  virtual ~RowCodec() = default;
  /// Never throws for a bad row: the work item then carries the row's error and the Generator finishes it at once.
  virtual std::unique_ptr<WorkItem> encode(const RecordSource& source, std::string_view record) const = 0;
  /// partial: a PartialRow's record, of the same input record and identity: the row goes on from there.
  virtual void resume(WorkItem& item, std::string_view partial) const = 0;
  /// The work item of a row that is not to be computed: it becomes an error with this reason. Looks at the record as
  /// little as possible, because encode() may not have survived it.
  virtual std::unique_ptr<WorkItem> refuse(const RecordSource& source, std::string_view record,
                                           const std::string& reason) const = 0;
};

/// What a Generator expects of the work it holds; seconds from now.
struct GeneratorEstimate {
  double row_s = 0;  ///< from a row's first step to its end, on average so far; 0: not known
};

/// Progress counters a leader reports; monotone except *_now.
struct GeneratorStats {
  int64_t prompt_tokens = 0, generation_tokens = 0, steps = 0, sum_running = 0;
  int64_t running_now = 0, waiting_now = 0;
  double kv_usage_now = 0, kv_usage_peak = 0;  ///< 0..1
  double step_seconds = 0;
  double plan_seconds = 0;        ///< ordering rows by shared beginnings; some of it inside step_seconds
  int64_t rows_deduplicated = 0;  ///< that got the answer of an equal row
  int64_t rows_stopped = 0, rows_at_length = 0, rows_repetitive = 0;  ///< answered rows, by what ended their first sample
  int64_t rows_broken = 0;                                            ///< rows with errors that are not their own fault
  int64_t preemptions = 0, recomputed_tokens = 0;
  int64_t prefix_cache_queries = 0, prefix_cache_hits = 0;  ///< prompt tokens looked up in the prefix cache, and found
  double sum_kv_waste = 0;           ///< over steps: share of the slots in allocated blocks that hold nothing
  int64_t sum_kv_shared_blocks = 0;  ///< over steps: blocks that sharing saved
  double device_s = 0, host_stall_s = 0, starved_s = 0, text_s = 0, schedule_s = 0;  ///< engine/README.md, "Metrics"

  /// Counters of both; peaks: the higher one; kv_usage_now: the sum.
  void add(const GeneratorStats& other);
  /// Share of the looked-up prompt tokens that were found; 0 without any.
  double prefix_hit_rate() const {
    return prefix_cache_queries > 0 ? static_cast<double>(prefix_cache_hits) / static_cast<double>(prefix_cache_queries)
                                    : 0;
  }
};

/// Computes rows, on a replica's leader. One thread calls it (the step loop).
class Generator {
 public:
  virtual ~Generator() = default;
  virtual void submit(std::unique_ptr<WorkItem> item) = 0;
  /// One engine step; callable without work. Returns false when there was nothing to do.
  virtual bool step() = 0;
  virtual std::vector<FinishedRow> take_finished() = 0;
  virtual bool idle() const = 0;
  /// From now on no row begins: those that have begun may finish.
  virtual void close_admission() = 0;
  /// Gives up the rows that are not finished, after the steps in flight (take_finished() may have more rows then).
  /// Returns what is worth saving; idle() holds afterwards and no step follows.
  virtual std::vector<PartialRow> take_partial() = 0;
  /// No row will come any more, and idle() holds: called once. A replica of several ranks lets the others go.
  virtual void finish() {}
  /// How many more rows should be submitted to keep the device busy (0: enough queued).
  virtual int64_t wants() const = 0;
  virtual GeneratorEstimate estimate() const = 0;
  virtual GeneratorStats stats() const = 0;
  /// What varied from row to row and step to step so far.
  virtual const Distributions& distributions() const = 0;

  /// What to call in step() before the first step of a row.
  void on_begin(std::function<void(int64_t row)> callback) { on_begin_ = std::move(callback); }

 protected:
  void begins(int64_t row) const {
    if (on_begin_) on_begin_(row);
  }

 private:
  std::function<void(int64_t row)> on_begin_;
};

}  // namespace tokenmill::jobs
