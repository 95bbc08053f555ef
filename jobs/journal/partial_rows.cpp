#include "jobs/journal/partial_rows.h"

#include <cstring>
#include <span>

#include "io/file.h"
#include "kernels/core/check.h"
#include "kernels/core/error.h"

namespace tokenmill::jobs {

void PartialRows::insert(const LedgerEntry& entry, const std::string& part) {
  TM_ASSERT(entry.partial);
  places_.insert_or_assign(entry.row, Place{part, entry});
}

std::optional<std::string> PartialRows::read(int64_t row, uint64_t row_digest) const {
  const auto found = places_.find(row);
  if (found == places_.end() || found->second.entry.row_digest != row_digest) return std::nullopt;
  const auto& [part, entry] = found->second;
  std::string record(static_cast<size_t>(entry.length), '\0');
  io::File::open_read(part).read_exactly_at(entry.offset, std::as_writable_bytes(std::span(record)));
  if (digest(record) != entry.record_digest)
    throw Error(ErrorKind::kIo, "{}: what was saved of row {} (byte {}, {} bytes) is damaged", part, row, entry.offset,
                entry.length);
  record.pop_back();
  return record;
}

std::string PartialRows::serialize() const {
  std::string bytes;
  for (const auto& [row, place] : places_) {
    const auto length = static_cast<uint32_t>(place.part.size());
    bytes.append(reinterpret_cast<const char*>(&place.entry), sizeof place.entry);
    bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
    bytes += place.part;
  }
  return bytes;
}

PartialRows PartialRows::deserialize(std::string_view bytes) {
  PartialRows rows;
  while (!bytes.empty()) {
    LedgerEntry entry;
    uint32_t length = 0;
    TM_ASSERT(bytes.size() >= sizeof entry + sizeof length);
    std::memcpy(&entry, bytes.data(), sizeof entry);
    std::memcpy(&length, bytes.data() + sizeof entry, sizeof length);
    bytes.remove_prefix(sizeof entry + sizeof length);
    TM_ASSERT(bytes.size() >= length);
    rows.insert(entry, std::string(bytes.substr(0, length)));
    bytes.remove_prefix(length);
  }
  return rows;
}

}  // namespace tokenmill::jobs
