#include "jobs/commit.h"

#include <chrono>

#include "io/file.h"
#include "jobs/journal/ledger.h"
#include "kernels/core/check.h"

namespace tokenmill::jobs {
namespace {

void append(io::FileWriter& part, LedgerWriter& ledger, FinishedRow row, uint64_t row_digest) {
  TM_ASSERT(row.record.find('\n') == std::string::npos, "the record of row {} holds a newline", row.row);
  row.record += '\n';
  const int64_t offset = part.offset();
  part.write(row.record);
  ledger.append({.row = row.row,
                 .offset = offset,
                 .length = part.offset() - offset,
                 .record_digest = digest(row.record),
                 .row_digest = row_digest,
                 .failed = row.failed});
}

}  // namespace

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

void Commit::push(FinishedRow row, uint64_t row_digest) {
  const auto bytes = static_cast<int64_t>(row.record.size());
  if (queue_.push({std::move(row), row_digest}, bytes)) return;
  close();
  TM_ASSERT(false, "a row was pushed after close()");
}

void Commit::close() {
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
}

void Commit::write_all() {
  using Clock = std::chrono::steady_clock;
  const auto check = [&] {
    if (options_.before_commit) options_.before_commit();
  };
  check();
  io::FileWriter part(io::File::create_new(paths_.part));
  LedgerWriter ledger(paths_.ledger);
  auto last_commit = Clock::now();
  int64_t uncommitted = 0;
  while (!queue_.ended()) {
    if (auto entry = queue_.pop(uncommitted > 0 ? options_.commit_s / 4 : 1.0)) {
      append(part, ledger, std::move(entry->row), entry->row_digest);
      ++uncommitted;
    }
    const auto now = Clock::now();
    const bool due = std::chrono::duration<double>(now - last_commit).count() >= options_.commit_s;
    if (uncommitted == LedgerWriter::kMaxUnflushed || (uncommitted > 0 && due)) {
      check();
      part.flush();  // a ledger entry never reaches the file before its record
      ledger.flush();
      last_commit = now;
      uncommitted = 0;
    }
  }
  if (uncommitted > 0) check();
  part.close();
  ledger.close();
}

}  // namespace tokenmill::jobs
