#include "engine/models/chunk_route.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tokenmill {
namespace {

/// Which bytes of the plan's needs one node wants.
class NodeNeeds {
 public:
  NodeNeeds(const LoadPlan& load, const std::vector<TensorNeed>& needs) : load_(load), wanted_(load.needs.size()) {
    std::map<std::pair<std::string, int64_t>, std::vector<const TensorNeed*>> by_tensor;
    for (const TensorNeed& need : needs) by_tensor[{need.file, need.offset}].push_back(&need);
    for (size_t i = 0; i < load.needs.size(); ++i) {
      const auto found = by_tensor.find({load.needs[i].file, load.needs[i].offset});
      if (found != by_tensor.end()) wanted_[i] = found->second;
    }
  }

  bool wants(const io::ReadChunk& chunk) const {
    const auto pieces = load_.reads.pieces_of(chunk);
    return std::any_of(pieces.begin(), pieces.end(), [&](const io::ReadPiece& piece) {
      const int64_t begin = load_.needs[piece.range_index].begin + piece.offset, end = begin + piece.length;
      const auto& wanted = wanted_[piece.range_index];
      return std::any_of(wanted.begin(), wanted.end(),
                         [&](const TensorNeed* need) { return need->begin < end && begin < need->end; });
    });
  }

 private:
  const LoadPlan& load_;
  std::vector<std::vector<const TensorNeed*>> wanted_;  // by need of the plan
};

}  // namespace

std::vector<ChunkRoute> read_all(const LoadPlan& load) {
  std::vector<ChunkRoute> routes;
  for (size_t id = 0; id < load.reads.chunks.size(); ++id) routes.push_back({id, -1, -1, load.reads.chunks[id].length});
  return routes;
}

std::vector<ChunkRoute> plan_routes(const LoadPlan& load, std::span<const std::vector<TensorNeed>> needs_by_node,
                                    int node) {
  std::vector<NodeNeeds> nodes;
  nodes.reserve(needs_by_node.size());
  for (const std::vector<TensorNeed>& needs : needs_by_node) nodes.emplace_back(load, needs);
  std::vector<ChunkRoute> routes;
  size_t turn = 0;
  for (size_t id = 0; id < load.reads.chunks.size(); ++id) {
    std::vector<int> chain;
    for (size_t n = 0; n < nodes.size(); ++n) {
      if (nodes[n].wants(load.reads.chunks[id])) chain.push_back(static_cast<int>(n));
    }
    if (chain.empty()) continue;
    std::rotate(chain.begin(), chain.begin() + static_cast<std::ptrdiff_t>(turn++ % chain.size()), chain.end());
    const auto self = std::find(chain.begin(), chain.end(), node);
    if (self == chain.end()) continue;
    routes.push_back({id, self == chain.begin() ? -1 : *(self - 1), self + 1 == chain.end() ? -1 : *(self + 1),
                      load.reads.chunks[id].length});
  }
  return routes;
}

}  // namespace tokenmill
