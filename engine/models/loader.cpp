#include "engine/models/loader.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>

#include "engine/models/chunk_ring.h"
#include "engine/models/load_plan.h"
#include "kernels/core/check.h"
#include "kernels/core/log.h"
#include "kernels/core/stopwatch.h"
#include "parallel/shared_memory.h"

namespace tokenmill {
namespace {

/// What is read on this node, and by how many ranks it is used.
struct NodePlan {
  LoadPlan load;
  int rank = 0, num_ranks = 1;
};

/// The union over the ranks of a communicator.
std::vector<TensorNeed> gather_needs(const parallel::Comm& comm, const std::vector<TensorNeed>& mine) {
  std::vector<TensorNeed> all;
  for (const std::string& bytes : parallel::gather_bytes(comm, to_bytes(mine))) {
    for (TensorNeed& need : needs_from_bytes(bytes)) all.push_back(std::move(need));
  }
  return merge_needs(all);
}

/// The ring's memory where no other rank uses it.
class OwnMemory {
 public:
  explicit OwnMemory(int64_t num_bytes)
      : bytes_(new (std::align_val_t{64}) std::byte[static_cast<size_t>(num_bytes)]()), num_bytes_(num_bytes) {}
  std::span<std::byte> bytes() const { return {bytes_.get(), static_cast<size_t>(num_bytes_)}; }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  std::unique_ptr<std::byte[], Free> bytes_;
  int64_t num_bytes_;
};

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

/// What went wrong in function, if anything.
template <typename Function>
std::optional<Error> failure_of(Function&& function) {
  try {
    function();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(ErrorKind::kInternal, std::string(error.what()));
  }
}

/// One rank's part of loading: its readers' threads, and its sinks on the calling thread.
class RankLoad {
 public:
  RankLoad(const WeightPlan& plan, const NodePlan& node, const LoadOptions& options, const ChunkRing& ring)
      : node_(node), options_(options), ring_(ring), feed_(plan, node.load) {}

  /// Reads and fills until all is done or the ring is stopped; what failed here, if anything.
  std::optional<Error> run() {
    const int ranks = node_.num_ranks, readers = options_.num_readers;
    std::vector<std::optional<Error>> failures(static_cast<size_t>(readers) + 1);
    std::vector<double> read_s(static_cast<size_t>(readers));
    {
      std::vector<std::jthread> threads;
      run_part(failures.back(), [&] {
        for (int reader = node_.rank; reader < readers; reader += ranks) {
          const auto index = static_cast<size_t>(reader);
          threads.emplace_back(
              [this, index, &failures, &read_s] { run_part(failures[index], [&] { read(index, read_s[index]); }); });
        }
        fill_sinks();
      });
    }
    stats_.read_s = std::accumulate(read_s.begin(), read_s.end(), 0.0);
    for (int reader = node_.rank; reader < readers; reader += ranks) stats_.bytes_read += bytes_of(reader);
    for (std::optional<Error>& failure : failures) {
      if (failure) return failure;
    }
    return std::nullopt;
  }

  const LoadStats& stats() const { return stats_; }

 private:
  /// A failure stops the ring, so that nobody waits for this part.
  template <typename Part>
  void run_part(std::optional<Error>& failure, Part&& part) {
    failure = failure_of(part);
    if (failure) ring_.stop();
  }

  size_t num_chunks() const { return node_.load.reads.chunks.size(); }

  int64_t bytes_of(int reader) const {
    int64_t bytes = 0;
    for (auto i = static_cast<size_t>(reader); i < num_chunks(); i += static_cast<size_t>(options_.num_readers))
      bytes += node_.load.reads.chunks[i].length;
    return bytes;
  }

  /// Every num_readers-th chunk.
  void read(size_t reader, double& seconds) {
    io::ChunkReader chunks(node_.load.files, node_.load.reads);
    const auto step = static_cast<size_t>(options_.num_readers);
    for (size_t i = reader; i < num_chunks(); i += step) {
      if (!ring_.wait_free(i)) return;
      const Stopwatch watch(seconds);
      const io::ReadChunk& chunk = node_.load.reads.chunks[i];
      try {
        chunks.read(i, ring_.slot(i).first(static_cast<size_t>(chunk.length)));
      } catch (const Error& error) {
        throw Error(error.kind(), "{}; tensor {} was being read", error.what(), failing_tensor(node_.load, chunk));
      }
      ring_.publish(i);
      chunks.will_need(i + step);
    }
  }

  void fill_sinks() {
    std::vector<size_t> wanted;
    for (size_t i = 0; i < num_chunks(); ++i) {
      if (feed_.wants(i)) wanted.push_back(i);
    }
    wanted.push_back(num_chunks());
    ring_.release_below(node_.rank, wanted[0]);
    for (size_t n = 0; n + 1 < wanted.size(); ++n) {
      const size_t i = wanted[n];
      {
        const Stopwatch watch(stats_.wait_s);
        if (!ring_.wait_filled(i)) return;
      }
      const Stopwatch watch(stats_.pack_s);
      feed_.feed(i, ring_.slot(i).first(static_cast<size_t>(node_.load.reads.chunks[i].length)));
      ring_.release_below(node_.rank, wanted[n + 1]);
    }
    feed_.finish();
  }

  const NodePlan& node_;
  const LoadOptions& options_;
  const ChunkRing& ring_;
  SinkFeed feed_;
  LoadStats stats_;
};

LoadStats run(const WeightPlan& plan, const NodePlan& node, const ChunkRing::Shape& shape, std::span<std::byte> memory,
              const LoadOptions& options) {
  const ChunkRing ring(memory, shape);
  RankLoad load(plan, node, options, ring);
  if (const std::optional<Error> error = load.run()) throw *error;
  return load.stats();
}

LoadStats load_alone(const WeightPlan& plan, const LoadOptions& options) {
  const NodePlan node{make_load_plan(merge_needs(needs_of(plan)), options.reads)};
  const ChunkRing::Shape shape{node.load.reads.largest_chunk_bytes, options.num_slots, 1};
  return run(plan, node, shape, OwnMemory(shape.num_bytes()).bytes(), options);
}

LoadStats load_on_node(const WeightPlan& plan, const parallel::Comm& comm, const LoadOptions& options) {
  std::vector<TensorNeed> needs = parallel::agree_on(comm, [&] { return merge_needs(needs_of(plan)); });
  const NodePlan node{make_load_plan(gather_needs(comm, needs), options.reads), comm.rank(), comm.size()};
  const ChunkRing::Shape shape{node.load.reads.largest_chunk_bytes, options.num_slots, comm.size()};
  parallel::SharedMemory memory;
  try {
    memory = parallel::SharedMemory(comm, shape.num_bytes());
  } catch (const parallel::AgreedError& error) {
    if (comm.rank() == 0) log::warning("every rank of this node reads the weights for itself: {}", error.what());
    return load_alone(plan, options);
  }
  return run(plan, node, shape, memory.bytes(), options);
}

int64_t sum(const parallel::Comm& comm, int64_t value) {
  const std::vector<int64_t> all = parallel::gather_values(comm, value);
  return std::accumulate(all.begin(), all.end(), int64_t{0});
}

}  // namespace

LoadStats load_weights(const WeightPlan& plan, const LoadGroup& group, const LoadOptions& options) {
  TM_ASSERT((group.job == nullptr) == (group.node == nullptr) && options.num_slots > 0 && options.num_readers > 0);
  LoadStats stats;
  if (group.job == nullptr) {
    stats = load_alone(plan, options);
    stats.node_bytes_read = stats.job_bytes_read = stats.bytes_read;
    return stats;
  }
  parallel::agree(*group.job, failure_of([&] { stats = load_on_node(plan, *group.node, options); }));
  stats.node_bytes_read = sum(*group.node, stats.bytes_read);
  stats.job_bytes_read = sum(*group.job, stats.bytes_read);
  return stats;
}

}  // namespace tokenmill
