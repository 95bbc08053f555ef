#include "app/rows/id_census.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>

#include "app/rows/scan.h"
#include "io/json.h"
#include "jobs/output_dir.h"
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

void IdCensus::begin(const std::string& scratch_dir) {
  const auto path = [&](const char* name) { return scratch_dir.empty() ? "" : scratch_dir + "/" + name; };
  native_ids_.emplace(path(jobs::OutputDir::kNativeIdsName));
  custom_ids_.emplace(path(jobs::OutputDir::kCustomIdsName));
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
    const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
    custom_ids_->add({hash.high64, hash.low64, row});
    return;
  }
  if (id.empty() || id == "null") return;
  const std::string text = canonical(id);
  if (text.empty()) return;
  native_ids_->add(XXH3_64bits(text.data(), text.size()));
}

void IdCensus::finish() {
  std::optional<uint64_t> last;
  native_ids_->take_all([&](uint64_t id) {
    if (last == id) ++num_repeated_ids_;
    last = id;
  });
  std::optional<CustomId> first;
  custom_ids_->take_all([&](const CustomId& id) {
    if (first && first->high == id.high && first->low == id.low)
      repeated_.emplace(id.row, first->row);
    else
      first = id;
  });
  native_ids_.reset();
  custom_ids_.reset();
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
