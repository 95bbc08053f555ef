#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"

namespace tokenmill::jobs {

/// One record in a ledger; the byte format is in jobs/README.md.
struct LedgerEntry {
  int64_t row = 0;
  int64_t offset = 0;          ///< of the record in the part file
  int64_t length = 0;          ///< bytes of the record, its newline included
  uint64_t record_digest = 0;  ///< digest() of those bytes
  uint64_t row_digest = 0;     ///< digest() of the input record
  bool failed = false;         ///< the record carries an error
  bool partial = false;        ///< no result: what an unfinished row had come to
  bool operator==(const LedgerEntry&) const = default;
};

/// XXH3, 64 bits, seed 0.
uint64_t digest(std::string_view bytes);

/// Appends entries to a new ledger file. At most kMaxUnflushed of them may be appended between two flushes: they stay
/// in memory until then, so that the caller decides when they reach the file (after their records).
class LedgerWriter {
 public:
  static constexpr int64_t kMaxUnflushed = 1024;
  /// synced: every flush is followed by sync_data(); readers trust the records of such a ledger more.
  explicit LedgerWriter(const std::string& path, bool synced = false);
  void append(const LedgerEntry& entry);
  /// Hands everything appended to the operating system.
  void flush();
  /// flush(), then fdatasync.
  void sync_data();
  void close() { writer_.close(); }

 private:
  io::FileWriter writer_;
  int64_t num_entries_ = 0;
  int64_t num_unflushed_ = 0;
};

/// Reads a ledger. What an interrupted write left at its end is torn: not counted, but known. That is half an entry, and
/// everything from the first entry on whose checksum fails among the last kMaxUnflushed (a lost machine may have kept any
/// of the pages that were not on the disk yet). Anything else that is wrong throws Error(kIo) naming the entry.
class LedgerReader {
 public:
  explicit LedgerReader(const std::string& path);
  int64_t num_entries() const { return num_entries_; }
  int64_t torn_bytes() const { return torn_bytes_; }
  bool synced() const { return synced_; }
  const std::string& path() const { return file_.path(); }
  /// Entries [first, first + entries.size()).
  void read(int64_t first, std::span<LedgerEntry> entries) const;
  /// Calls use(entry) for every entry in order.
  template <typename Use>
  void for_each(Use&& use) const {
    std::vector<LedgerEntry> entries;
    for (int64_t first = 0; first < num_entries_; first += kReadEntries) {
      entries.resize(static_cast<size_t>(std::min(kReadEntries, num_entries_ - first)));
      read(first, entries);
      for (const LedgerEntry& entry : entries) use(entry);
    }
  }

 private:
  static constexpr int64_t kReadEntries = 4096;
  int64_t find_torn(int64_t whole_entries) const;
  io::File file_;
  int64_t num_entries_ = 0;
  int64_t torn_bytes_ = 0;
  bool synced_ = false;
};

/// The file's size with its first num_entries entries.
int64_t ledger_bytes(int64_t num_entries);

}  // namespace tokenmill::jobs
