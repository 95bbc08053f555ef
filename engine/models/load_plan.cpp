#include "engine/models/load_plan.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>
#include <utility>

#include "kernels/core/check.h"

namespace tokenmill {

std::vector<TensorNeed> needs_of(const WeightPlan& plan) {
  std::vector<TensorNeed> needs;
  for (const WeightPlan::Entry& entry : plan.entries) {
    const WeightSource& source = *entry.source;
    needs.push_back({source.file, source.stored_name, source.offset, source.num_bytes,
                     entry.sink->granularity(entry.part), entry.begin, entry.end});
  }
  return needs;
}

std::vector<TensorNeed> merge_needs(std::span<const TensorNeed> needs) {
  std::vector<TensorNeed> sorted;
  for (const TensorNeed& need : needs) {
    TM_ASSERT(need.begin >= 0 && need.begin <= need.end && need.end <= need.num_bytes && need.unit_bytes > 0 &&
                  need.num_bytes % need.unit_bytes == 0,
              "{}: bytes [{}, {}) in units of {} are wanted of tensor {} with {} bytes", need.file, need.begin,
              need.end, need.unit_bytes, need.name, need.num_bytes);
    if (need.begin < need.end) sorted.push_back(need);  // an empty tensor lies at the next one's offset
  }
  std::sort(sorted.begin(), sorted.end(), [](const TensorNeed& a, const TensorNeed& b) {
    return std::tie(a.file, a.offset, a.begin, a.end) < std::tie(b.file, b.offset, b.begin, b.end);
  });
  std::vector<TensorNeed> merged;
  for (size_t first = 0, last = 0; first < sorted.size(); first = last) {
    const TensorNeed& tensor = sorted[first];
    int64_t unit = 1;
    for (; last < sorted.size() && sorted[last].file == tensor.file && sorted[last].offset == tensor.offset; ++last) {
      TM_ASSERT(sorted[last].num_bytes == tensor.num_bytes, "{}: tensor {} has {} and {} bytes", tensor.file,
                tensor.name, tensor.num_bytes, sorted[last].num_bytes);
      unit = std::lcm(unit, sorted[last].unit_bytes);
    }
    size_t open = merged.size();  // the need that the next one may continue
    for (size_t i = first; i < last; ++i) {
      TensorNeed need = sorted[i];
      need.unit_bytes = unit;
      need.begin = need.begin / unit * unit;
      need.end = (need.end + unit - 1) / unit * unit;
      if (open < merged.size() && need.begin <= merged[open].end) {
        merged[open].end = std::max(merged[open].end, need.end);
      } else {
        open = merged.size();
        merged.push_back(std::move(need));
      }
    }
  }
  return merged;
}

namespace {

void put(std::string& out, int64_t value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); }
void put(std::string& out, const std::string& text) {
  put(out, static_cast<int64_t>(text.size()));
  out += text;
}

class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}
  bool at_end() const { return at_ == bytes_.size(); }
  int64_t number() {
    int64_t value = 0;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  std::string text() {
    const auto size = static_cast<size_t>(number());
    return {take(size), size};
  }

 private:
  const char* take(size_t size) {
    TM_ASSERT(size <= bytes_.size() - at_, "a rank's list of tensors is cut off at byte {}", at_);
    at_ += size;
    return bytes_.data() + at_ - size;
  }
  const std::string& bytes_;
  size_t at_ = 0;
};

}  // namespace

std::string to_bytes(std::span<const TensorNeed> needs) {
  std::string out;
  for (const TensorNeed& need : needs) {
    put(out, need.file);
    put(out, need.name);
    for (const int64_t value : {need.offset, need.num_bytes, need.unit_bytes, need.begin, need.end}) put(out, value);
  }
  return out;
}

std::vector<TensorNeed> needs_from_bytes(const std::string& bytes) {
  std::vector<TensorNeed> needs;
  for (Reader in(bytes); !in.at_end();) {
    TensorNeed& need = needs.emplace_back();
    need.file = in.text();
    need.name = in.text();
    for (int64_t* value : {&need.offset, &need.num_bytes, &need.unit_bytes, &need.begin, &need.end})
      *value = in.number();
  }
  return needs;
}

LoadPlan make_load_plan(std::vector<TensorNeed> needs, const io::ReadPlanOptions& options) {
  LoadPlan plan;
  plan.needs = std::move(needs);
  std::vector<io::ByteRange> ranges;
  for (const TensorNeed& need : plan.needs) {
    if (plan.files.empty() || plan.files.back() != need.file) plan.files.push_back(need.file);
    ranges.push_back({static_cast<int32_t>(plan.files.size() - 1), need.offset + need.begin, need.end - need.begin,
                      need.unit_bytes});
  }
  plan.reads = io::plan_reads(ranges, options);
  return plan;
}

SinkFeed::SinkFeed(const WeightPlan& plan, const LoadPlan& load) : load_(load), targets_(load.needs.size()) {
  std::map<std::pair<std::string, int64_t>, std::vector<const WeightPlan::Entry*>> by_tensor;
  for (const WeightPlan::Entry& entry : plan.entries) {
    Progress& progress = progress_[entry.sink];
    progress.left = progress.bytes += entry.end - entry.begin;
    by_tensor[{entry.source->file, entry.source->offset}].push_back(&entry);
  }
  for (size_t i = 0; i < load.needs.size(); ++i) {
    const auto found = by_tensor.find({load.needs[i].file, load.needs[i].offset});
    if (found == by_tensor.end()) continue;
    for (const WeightPlan::Entry* entry : found->second) {
      if (entry->begin < load.needs[i].end && load.needs[i].begin < entry->end) targets_[i].push_back(entry);
    }
  }
}

bool SinkFeed::wants(size_t chunk_index) const {
  for (const io::ReadPiece& piece : load_.reads.pieces_of(load_.reads.chunks[chunk_index])) {
    const int64_t from = load_.needs[piece.range_index].begin + piece.offset;
    for (const WeightPlan::Entry* target : targets_[piece.range_index]) {
      if (target->begin < from + piece.length && from < target->end) return true;
    }
  }
  return false;
}

void SinkFeed::feed(size_t chunk_index, std::span<const std::byte> bytes) {
  for (const io::ReadPiece& piece : load_.reads.pieces_of(load_.reads.chunks[chunk_index])) {
    const TensorNeed& need = load_.needs[piece.range_index];
    const auto own = bytes.subspan(static_cast<size_t>(piece.chunk_offset), static_cast<size_t>(piece.length));
    for (const WeightPlan::Entry* target : targets_[piece.range_index]) {
      give(need, *target, need.begin + piece.offset, own);
    }
  }
}

void SinkFeed::give(const TensorNeed& need, const WeightPlan::Entry& target, int64_t offset,
                    std::span<const std::byte> bytes) {
  const int64_t from = std::max(offset, target.begin);
  const int64_t to = std::min(offset + static_cast<int64_t>(bytes.size()), target.end);
  if (from >= to) return;
  try {
    target.sink->write(target.part, from,
                       bytes.subspan(static_cast<size_t>(from - offset), static_cast<size_t>(to - from)));
    Progress& progress = progress_[target.sink];
    progress.left -= to - from;
    if (progress.left == 0) target.sink->finish();
  } catch (const Error& error) {
    throw Error(error.kind(), "{}: tensor {}: {}", need.file, need.name, error.what());
  }
}

void SinkFeed::finish() {
  for (const auto& [sink, progress] : progress_) {
    TM_ASSERT(progress.left == 0, "{} of {} bytes for a weight were not read", progress.left, progress.bytes);
    if (progress.bytes == 0) sink->finish();
  }
}

}  // namespace tokenmill
