#include "engine/models/rank_load.h"

#include <filesystem>
#include <numeric>
#include <thread>

#include "engine/models/chunk_relay.h"
#include "kernels/core/stopwatch.h"

namespace tokenmill {
namespace {

/// The tensor at which reading a chunk failed: the first that a file which is too short does not hold whole.
const std::string& failing_tensor(const LoadPlan& load, const io::ReadChunk& chunk) {
  std::error_code ignored;
  const uintmax_t size = std::filesystem::file_size(load.files[static_cast<size_t>(chunk.file_index)], ignored);
  const auto pieces = load.reads.pieces_of(chunk);
  for (const io::ReadPiece& piece : pieces) {
    if (ignored || static_cast<uintmax_t>(chunk.offset + piece.chunk_offset + piece.length) > size)
      return load.needs[piece.range_index].name;
  }
  return load.needs[pieces.front().range_index].name;
}

}  // namespace

RankLoad::RankLoad(const WeightPlan& plan, const NodePlan& node, const LoadOptions& options, const ChunkRing& ring)
    : node_(node), options_(options), ring_(ring), feed_(plan, node.load) {
  for (size_t i = 0; i < node.chunks.size(); ++i) {
    if (node.chunks[i].from < 0) own_chunks_.push_back(i);
  }
}

std::optional<Error> RankLoad::run() {
  const auto readers = static_cast<size_t>(options_.num_readers), ranks = static_cast<size_t>(node_.num_ranks);
  const auto rank = static_cast<size_t>(node_.rank);
  std::vector<std::optional<Error>> failures(readers + 2);
  std::vector<double> read_s(readers);
  // A failure stops the ring, so that nobody waits for the part that failed.
  const auto run_part = [&](size_t index, auto&& part) {
    failures[index] = failure_of(part);
    if (failures[index]) ring_.stop();
  };
  {
    std::vector<std::jthread> threads;
    run_part(readers, [&] {
      for (size_t reader = rank; reader < readers; reader += ranks)
        threads.emplace_back([&, reader] { run_part(reader, [&] { read(reader, read_s[reader]); }); });
      if (node_.relays && rank == 0) {
        threads.emplace_back([&] {
          run_part(readers + 1, [&] { ChunkRelay(node_.chunks, ring_, node_.num_ranks, *node_.nodes).run(); });
        });
      }
      fill_sinks();
    });
  }
  stats_.read_s = std::accumulate(read_s.begin(), read_s.end(), 0.0);
  for (size_t reader = rank; reader < readers; reader += ranks) {
    for (size_t i = reader; i < own_chunks_.size(); i += readers)
      stats_.bytes_read += node_.chunks[own_chunks_[i]].length;
  }
  for (std::optional<Error>& failure : failures) {
    if (failure) return failure;
  }
  return std::nullopt;
}

/// Every num_readers-th of the node's own chunks.
void RankLoad::read(size_t reader, double& seconds) const {
  io::ChunkReader chunks(node_.load.files, node_.load.reads);
  const auto step = static_cast<size_t>(options_.num_readers);
  for (size_t i = reader; i < own_chunks_.size(); i += step) {
    if (!ring_.wait_free(own_chunks_[i])) return;
    const Stopwatch watch(seconds);
    const ChunkRoute& chunk = node_.chunks[own_chunks_[i]];
    try {
      chunks.read(chunk.id, ring_.slot(own_chunks_[i]).first(static_cast<size_t>(chunk.length)));
    } catch (const Error& error) {
      throw Error(error.kind(), "{}; tensor {} was being read", error.what(),
                  failing_tensor(node_.load, node_.load.reads.chunks[chunk.id]));
    }
    ring_.publish(own_chunks_[i]);
    if (options_.on_progress) options_.on_progress();
    if (i + step < own_chunks_.size()) chunks.will_need(node_.chunks[own_chunks_[i + step]].id);
  }
}

void RankLoad::fill_sinks() {
  std::vector<size_t> wanted;
  for (size_t i = 0; i < node_.chunks.size(); ++i) {
    if (feed_.wants(node_.chunks[i].id)) wanted.push_back(i);
  }
  wanted.push_back(node_.chunks.size());
  ring_.release_below(node_.rank, wanted[0]);
  for (size_t n = 0; n + 1 < wanted.size(); ++n) {
    const size_t i = wanted[n];
    {
      const Stopwatch watch(stats_.wait_s);
      if (!ring_.wait_filled(i)) return;
    }
    const Stopwatch watch(stats_.pack_s);
    feed_.feed(node_.chunks[i].id, ring_.slot(i).first(static_cast<size_t>(node_.chunks[i].length)));
    ring_.release_below(node_.rank, wanted[n + 1]);
    if (options_.on_progress) options_.on_progress();
  }
  feed_.finish();
}

}  // namespace tokenmill
