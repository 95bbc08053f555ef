#include "app/rows/id_census.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "app/rows/scan.h"
#include "io/json.h"
#include "kernels/core/check.h"
#include "kernels/core/error.h"

namespace tokenmill::rows {
namespace {

/// One spelling for equal ids: "\u0061" is "a". Values that are no valid id give an empty text.
std::string canonical(std::string_view value) {
  if (value.find('\\') == value.npos) return std::string(value);
  try {
    return io::to_json(io::parse_json(value, "id"));
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

bool HashSet64::insert(uint64_t value) {
  if (value == 0) {  // marks free slots
    const bool is_new = !has_zero_;
    has_zero_ = true;
    size_ += is_new ? 1 : 0;
    return is_new;
  }
  if (static_cast<size_t>(size_) * 4 >= slots_.size() * 3) grow();
  const size_t mask = slots_.size() - 1;
  size_t at = static_cast<size_t>(value) & mask;
  while (slots_[at] != 0 && slots_[at] != value) at = (at + 1) & mask;
  if (slots_[at] == value) return false;
  slots_[at] = value;
  ++size_;
  return true;
}

void HashSet64::grow() {
  std::vector<uint64_t> old(std::max<size_t>(1024, slots_.size() * 2), 0);
  old.swap(slots_);
  const size_t mask = slots_.size() - 1;
  for (const uint64_t value : old) {
    if (value == 0) continue;
    size_t at = static_cast<size_t>(value) & mask;
    while (slots_[at] != 0) at = (at + 1) & mask;
    slots_[at] = value;
  }
}

FirstRows::Slot& FirstRows::find(uint64_t high, uint32_t low) {
  const size_t mask = slots_.size() - 1;
  size_t at = static_cast<size_t>(high) & mask;
  while (slots_[at].row_plus_one != 0 && (slots_[at].high != high || slots_[at].low != low)) at = (at + 1) & mask;
  return slots_[at];
}

int64_t FirstRows::first(uint64_t high, uint32_t low, int64_t row) {
  if (static_cast<size_t>(size_) * 4 >= slots_.size() * 3) grow();
  Slot& slot = find(high, low);
  if (slot.row_plus_one == 0) {
    slot = {high, low, static_cast<uint32_t>(row + 1)};
    ++size_;
  }
  return static_cast<int64_t>(slot.row_plus_one) - 1;
}

void FirstRows::grow() {
  std::vector<Slot> old(std::max<size_t>(1024, slots_.size() * 2));
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.row_plus_one != 0) find(slot.high, slot.low) = slot;
  }
}

void IdCensus::add(int64_t row, std::string_view record) {
  std::string_view id, custom_id;
  bool batch = false;
  scan_members(record, [&](std::string_view key, std::string_view value) {
    if (key == "id")
      id = value;
    else if (key == "custom_id")
      custom_id = value;
    else if (key == "body" || key == "url" || key == "method")
      batch = true;
    return true;
  });
  if (batch && !custom_id.empty()) {
    const std::string text = custom_id.front() == '"' ? canonical(custom_id) : "";
    if (text.empty()) return;
    if (custom_ids_.size() >= max_ids_ || row >= UINT32_MAX) {
      complete_ = false;
      return;
    }
    const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
    const int64_t first = custom_ids_.first(hash.high64, static_cast<uint32_t>(hash.low64), row);
    if (first != row) repeated_.emplace(row, first);
    return;
  }
  if (id.empty() || id == "null") return;
  const std::string text = canonical(id);
  if (text.empty()) return;
  if (native_ids_.size() >= max_ids_) {
    complete_ = false;
    return;
  }
  if (!native_ids_.insert(XXH3_64bits(text.data(), text.size()))) ++num_repeated_ids_;
}

std::string IdCensus::serialize() const {
  std::string bytes;
  for (const auto& [row, first] : repeated_)
    for (const int64_t value : {row, first}) bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  return bytes;
}

std::unordered_map<int64_t, int64_t> IdCensus::deserialize(const std::string& bytes) {
  TM_ASSERT(bytes.size() % 16 == 0);
  std::unordered_map<int64_t, int64_t> repeated;
  for (size_t at = 0; at < bytes.size(); at += 16) {
    int64_t pair[2];
    std::memcpy(pair, bytes.data() + at, sizeof pair);
    repeated.emplace(pair[0], pair[1]);
  }
  return repeated;
}

}  // namespace tokenmill::rows
