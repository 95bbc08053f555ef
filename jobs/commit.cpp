#include "jobs/commit.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>

#include "io/file.h"
#include "jobs/journal/advice.h"
#include "jobs/journal/ledger.h"
#include "kernels/core/check.h"
#include "kernels/core/stopwatch.h"

namespace tokenmill::jobs {
namespace {

double thread_cpu_s() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::string parent(const std::string& path) { return std::filesystem::path(path).parent_path().string(); }

}  // namespace

/// A part and its ledger, open for writing.
class Commit::Files {
 public:
  Files(const PartPaths& paths, bool synced)
      : part_(io::File::create_new(paths.part)), ledger_(paths.ledger, synced), synced_(synced) {
    if (!synced_) return;
    io::sync_directory(parent(paths.part));
    io::sync_directory(parent(paths.ledger));
  }

  void append(FinishedRow row, uint64_t row_digest, bool partial) {
    TM_ASSERT(row.record.find('\n') == std::string::npos, "the record of row {} holds a newline", row.row);
    row.record += '\n';
    row.record += row.attachment;
    const int64_t offset = part_.offset();
    part_.write(row.record);
    ledger_.append({.row = row.row,
                    .offset = offset,
                    .length = part_.offset() - offset,
                    .record_digest = digest(row.record),
                    .row_digest = row_digest,
                    .failed = row.failed,
                    .partial = partial});
    ++uncommitted_;
    ++num_entries_;
  }

  int64_t uncommitted() const { return uncommitted_; }
  int64_t bytes() const { return part_.offset() + ledger_bytes(num_entries_); }

  /// An entry never reaches the ledger before its record is as safe as it will be.
  void commit() {
    if (synced_) {
      part_.sync_data();
      ledger_.sync_data();
    } else {
      part_.flush();
      ledger_.flush();
    }
    uncommitted_ = 0;
  }

  void close() {
    part_.close();
    ledger_.close();
  }

 private:
  io::FileWriter part_;
  LedgerWriter ledger_;
  bool synced_;
  int64_t uncommitted_ = 0;
  int64_t num_entries_ = 0;
};

void JournalStats::add(const JournalStats& other) {
  rows += other.rows;
  bytes += other.bytes;
  commits += other.commits;
  cpu_s += other.cpu_s;
  commit_s += other.commit_s;
  blocked_s += other.blocked_s;
}

Commit::Commit(const PartPaths& paths, const CommitOptions& options,
               std::function<void(const std::exception&)> on_error)
    : paths_(paths),
      options_(options),
      on_error_(std::move(on_error)),
      queue_(options.max_queued_rows, options.max_queued_bytes),
      thread_([this] { run(); }) {}

Commit::~Commit() {
  queue_.close();
  if (thread_.joinable()) thread_.join();
}

void Commit::push(FinishedRow row, uint64_t row_digest) { push(Entry{std::move(row), row_digest}); }

void Commit::push(PartialRow row, uint64_t row_digest) {
  push(Entry{{.row = row.row, .record = std::move(row.record)}, row_digest, /*partial=*/true});
}

void Commit::push(Entry entry) {
  const auto bytes = static_cast<int64_t>(entry.row.record.size() + entry.row.attachment.size());
  const Stopwatch stopwatch(stats_.blocked_s);
  if (queue_.push(std::move(entry), bytes)) return;
  close();
  TM_ASSERT(false, "a row was pushed after close()");
}

void Commit::close() {
  const Stopwatch stopwatch(stats_.blocked_s);
  queue_.close();
  if (thread_.joinable()) thread_.join();
  if (error_) std::rethrow_exception(error_);
}

void Commit::run() {
  try {
    write_all();
  } catch (const std::exception& e) {
    error_ = std::current_exception();
    queue_.close();
    on_error_(e);
  }
  stats_.cpu_s = thread_cpu_s();
}

void Commit::write_all() {
  using Clock = std::chrono::steady_clock;
  std::optional<Files> files;
  auto last_commit = Clock::now();
  const auto check = [&] {
    if (options_.before_commit) options_.before_commit();
  };
  const auto commit = [&] {
    check();
    const Stopwatch stopwatch(stats_.commit_s);
    with_advice([&] { files->commit(); });
    ++stats_.commits;
    last_commit = Clock::now();
  };
  while (!queue_.ended()) {
    const double since_s = std::chrono::duration<double>(Clock::now() - last_commit).count();
    const bool waits = !files || files->uncommitted() == 0;
    if (auto entry = queue_.pop(waits ? 1.0 : std::max(0.0, options_.commit_s - since_s))) {
      if (!files) check();
      with_advice([&] {
        if (!files) files.emplace(paths_, options_.durability == Durability::kDisk);
        files->append(std::move(entry->row), entry->row_digest, entry->partial);
        ++stats_.rows;
      });
    }
    const int64_t uncommitted = files ? files->uncommitted() : 0;
    const bool due = std::chrono::duration<double>(Clock::now() - last_commit).count() >= options_.commit_s;
    if (uncommitted == LedgerWriter::kMaxUnflushed || (uncommitted > 0 && due)) commit();
  }
  if (!files) return;
  if (files->uncommitted() > 0) commit();
  stats_.bytes = files->bytes();
  with_advice([&] { files->close(); });
}

}  // namespace tokenmill::jobs
