#include "jobs/journal/parts.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>

#include "io/file.h"
#include "jobs/journal/ledger.h"
#include "jobs/output_dir.h"
#include "kernels/core/log.h"

namespace tokenmill::jobs {
namespace {

namespace fs = std::filesystem;

struct PartName {
  int64_t run = 0, replica = 0;
  auto operator<=>(const PartName&) const = default;  // NOLINT(modernize-use-nullptr): clang 14 sees a 0 in it
};

std::optional<PartName> parse(const std::string& stem) {
  PartName name;
  const char* end = stem.data() + stem.size();
  const auto run = std::from_chars(stem.data(), end, name.run);
  if (run.ec != std::errc() || run.ptr == end || *run.ptr != '-') return std::nullopt;
  const auto replica = std::from_chars(run.ptr + 1, end, name.replica);
  if (replica.ec != std::errc() || replica.ptr != end) return std::nullopt;
  return name;
}

/// Parts that have a file with this suffix in a directory.
std::vector<PartName> names_in(const std::string& directory, const std::string& suffix) {
  std::vector<PartName> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().extension() == suffix)
      if (const auto name = parse(entry->path().stem().string())) names.push_back(*name);
  if (error) throw Error(ErrorKind::kIo, "{} cannot be listed: {}", directory, error.message());
  std::sort(names.begin(), names.end());
  return names;
}

/// Whether the part holds the record that the entry names.
bool holds(const io::File& part, const LedgerEntry& entry, std::string& buffer) {
  if (entry.length < 0 || entry.offset < 0 || entry.offset + entry.length > part.size()) return false;
  buffer.resize(static_cast<size_t>(entry.length));
  const auto bytes = std::as_writable_bytes(std::span(buffer));
  return part.read_at(entry.offset, bytes) == entry.length && digest(buffer) == entry.record_digest;
}

/// The entries of the ledger before the first whose record is damaged, and where the last of them ends in the part.
struct Good {
  int64_t entries = 0;
  int64_t part_bytes = 0;
};

Good check_records(const LedgerReader& ledger, const std::string& part_path) {
  Good good;
  std::error_code error;
  if (!fs::exists(part_path, error)) return good;
  const io::File part = io::File::open_read(part_path);
  const int64_t first =
      ledger.synced() ? std::max<int64_t>(0, ledger.num_entries() - LedgerWriter::kMaxUnflushed) : int64_t{0};
  std::string buffer;
  std::vector<LedgerEntry> entry(1);
  if (first > 0) {
    ledger.read(first - 1, entry);
    good = {first, entry[0].offset + entry[0].length};
  }
  for (int64_t i = first; i < ledger.num_entries(); ++i) {
    ledger.read(i, entry);
    if (!holds(part, entry[0], buffer)) break;
    good = {i + 1, entry[0].offset + entry[0].length};
  }
  return good;
}

void cut(const std::string& path, int64_t bytes) {
  std::error_code error;
  if (static_cast<int64_t>(fs::file_size(path, error)) <= bytes && !error) return;
  io::File file = io::File::open_append(path);
  file.truncate(bytes);
  file.sync();
}

void remove(const std::string& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) throw Error(ErrorKind::kIo, "{} cannot be removed: {}", path, error.message());
}

/// False when nothing of it counts: it is gone then.
bool cut_torn(const PartPaths& paths) {
  const LedgerReader ledger(paths.ledger);
  const Good good = check_records(ledger, paths.part);
  if (good.entries < ledger.num_entries())
    log::warning("{}: the records of {} rows are not in {} as they were written; these rows are computed again",
                 paths.ledger, ledger.num_entries() - good.entries, paths.part);
  if (good.entries == 0) {
    remove(paths.ledger);  // first: a part alone counts for nothing
    remove(paths.part);
    return false;
  }
  cut(paths.ledger, ledger_bytes(good.entries));
  cut(paths.part, good.part_bytes);
  return true;
}

}  // namespace

std::vector<PartPaths> list_parts(const OutputDir& directory) {
  std::vector<PartPaths> parts;
  for (const auto& [run, replica] : names_in(directory.ledgers_dir(), ".ledger"))
    parts.push_back(directory.part(run, replica));
  return parts;
}

std::vector<PartPaths> cut_torn_parts(const OutputDir& directory) {
  std::vector<PartPaths> parts = list_parts(directory);
  std::erase_if(parts, [](const PartPaths& paths) { return !cut_torn(paths); });
  for (const auto& [run, replica] : names_in(directory.parts_dir(), ".jsonl")) {
    const PartPaths paths = directory.part(run, replica);
    std::error_code error;
    if (!fs::exists(paths.ledger, error) && !error) remove(paths.part);
  }
  return parts;
}

}  // namespace tokenmill::jobs
