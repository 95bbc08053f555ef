// Streams a weight plan: every tensor once, files in order, ascending offsets, large reads.
#include <map>
#include <numeric>

#include "engine/models/weights.h"
#include "io/range_reader.h"
#include "kernels/core/check.h"

namespace tokenmill {
namespace {

/// One tensor and everything it feeds.
struct TensorStream {
  const WeightSource* source = nullptr;
  std::vector<const WeightPlan::Entry*> targets;
};

std::vector<TensorStream> in_file_order(const WeightPlan& plan) {
  std::map<std::pair<std::string, int64_t>, TensorStream> streams;  // (file, offset)
  for (const WeightPlan::Entry& entry : plan.entries) {
    TensorStream& stream = streams[{entry.source->file, entry.source->offset}];
    stream.source = entry.source;
    stream.targets.push_back(&entry);
  }
  std::vector<TensorStream> ordered;
  for (auto& [key, stream] : streams) ordered.push_back(std::move(stream));
  return ordered;
}

/// Pieces must suit every target.
int64_t unit_bytes(const TensorStream& stream) {
  int64_t unit = 1;
  for (const WeightPlan::Entry* target : stream.targets) unit = std::lcm(unit, target->sink->granularity(target->part));
  return unit;
}

}  // namespace

int64_t load_weights(const WeightPlan& plan) {
  std::map<WeightSink*, int64_t> parts_left;
  for (const WeightPlan::Entry& entry : plan.entries) ++parts_left[entry.sink];
  const std::vector<TensorStream> streams = in_file_order(plan);
  std::vector<std::string> files;
  std::vector<io::ByteRange> ranges;
  int64_t bytes_read = 0;
  for (const TensorStream& stream : streams) {
    const WeightSource& source = *stream.source;
    if (files.empty() || files.back() != source.file) files.push_back(source.file);
    ranges.push_back({static_cast<int32_t>(files.size() - 1), source.offset, source.num_bytes, unit_bytes(stream)});
    bytes_read += source.num_bytes;
  }
  io::read_ranges(files, ranges, [&](size_t index, int64_t offset, std::span<const std::byte> bytes) {
    const TensorStream& stream = streams[index];
    const bool last = offset + static_cast<int64_t>(bytes.size()) == stream.source->num_bytes;
    for (const WeightPlan::Entry* target : stream.targets) {
      target->sink->write(target->part, offset, bytes);
      if (last && --parts_left[target->sink] == 0) target->sink->finish();
    }
  });
  return bytes_read;
}

}  // namespace tokenmill
