// Streams a weight plan: every tensor once, files in order, ascending offsets, large reads.
#include <algorithm>
#include <map>
#include <numeric>

#include "engine/models/weights.h"
#include "io/file.h"
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

/// The largest multiple of every target's granularity that one read should carry.
int64_t chunk_bytes(const TensorStream& stream) {
  int64_t unit = 1;
  for (const WeightPlan::Entry* target : stream.targets) unit = std::lcm(unit, target->sink->granularity(target->part));
  return std::max(io::kReadChunkBytes / unit * unit, unit);
}

void stream_tensor(const TensorStream& stream, const io::File& file, std::vector<std::byte>& buffer) {
  const WeightSource& source = *stream.source;
  const int64_t chunk = std::min(chunk_bytes(stream), source.num_bytes);
  if (static_cast<int64_t>(buffer.size()) < chunk) buffer.resize(chunk);
  for (int64_t at = 0; at < source.num_bytes; at += chunk) {
    const std::span<std::byte> bytes(buffer.data(), std::min(chunk, source.num_bytes - at));
    file.read_exactly_at(source.offset + at, bytes);
    file.will_need(source.offset + at + static_cast<int64_t>(bytes.size()), chunk);
    for (const WeightPlan::Entry* target : stream.targets) target->sink->write(target->part, at, bytes);
  }
}

}  // namespace

int64_t load_weights(const WeightPlan& plan) {
  std::map<WeightSink*, int64_t> parts_left;
  for (const WeightPlan::Entry& entry : plan.entries) ++parts_left[entry.sink];
  std::vector<std::byte> buffer;
  io::File file;
  int64_t bytes_read = 0;
  for (const TensorStream& stream : in_file_order(plan)) {
    if (!file.is_open() || file.path() != stream.source->file) file = io::File::open_read(stream.source->file);
    stream_tensor(stream, file, buffer);
    bytes_read += stream.source->num_bytes;
    for (const WeightPlan::Entry* target : stream.targets) {
      if (--parts_left[target->sink] == 0) target->sink->finish();
    }
  }
  return bytes_read;
}

}  // namespace tokenmill
