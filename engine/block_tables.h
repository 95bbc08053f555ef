#pragma once
#include <cstdint>
#include <vector>

namespace tokenmill {

/// Stands in a block table where the group's window has left a block behind: nothing reads it any more, and the blocks
/// after it keep their index.
constexpr int32_t kNullBlock = -1;

/// Block ids per KV group, in order of position: entry b of a group covers positions [b * block_size, (b+1) *
/// block_size).
using BlockTables = std::vector<std::vector<int32_t>>;

}  // namespace tokenmill
