// token_logprobs; semantics in kernels/ops.h. A row is one thread's; work: the tiles that can hold a wanted token.
#include <algorithm>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/raw_softmax.h"
#include "kernels/cpu/row_logits.h"

namespace tokenmill::cpu {
namespace {

/// One row's logits with the maxima of its tiles, by which most tiles are passed over.
struct LogprobRow {
  RowLogits logits;
  const float* tile_max;
  int64_t num_tiles, vocab_size;
  RawSoftmax softmax;

  int64_t tile_size(int64_t tile) const { return std::min(kVocabTile, vocab_size - tile * kVocabTile); }

  int32_t rank(float logit) const {
    int64_t larger = 0;
    for (int64_t tile = 0; tile < num_tiles; ++tile) {
      if (!(tile_max[tile] > logit)) continue;
      const float* l = logits.tile(tile);
      for (int64_t i = 0; i < tile_size(tile); ++i) larger += l[i] > logit ? 1 : 0;
    }
    return static_cast<int32_t>(larger + 1);
  }

  /// ids[0 .. k): the k most likely in descending order, ascending id among equals.
  void most_likely(int32_t* ids, int64_t k) const {
    const auto before = [&](int32_t a, int32_t b) {
      const float x = logits.at(a), y = logits.at(b);
      return x != y ? x > y : a < b;
    };
    int64_t size = 0;  // of a heap whose front is the least likely; ids come in ascending order, so equals stay out
    for (int64_t tile = 0; tile < num_tiles; ++tile) {
      if (size == k && !(tile_max[tile] > logits.at(ids[0]))) continue;
      const float* l = logits.tile(tile);
      for (int64_t i = 0; i < tile_size(tile); ++i) {
        const auto id = static_cast<int32_t>(tile * kVocabTile + i);
        if (size == k) {
          if (!(l[i] > logits.at(ids[0]))) continue;
          std::pop_heap(ids, ids + k, before);
          ids[k - 1] = id;
          std::push_heap(ids, ids + k, before);
        } else {
          ids[size++] = id;
          std::push_heap(ids, ids + size, before);
        }
      }
    }
    std::sort_heap(ids, ids + size, before);
  }
};

}  // namespace

void CpuOps::do_token_logprobs(const LogprobResult& out, const HeadTiles& tiles, int64_t vocab_size,
                               const LogprobRows& rows, const SamplingTables& tables) {
  for_each_row(tiles.max.rows(), vocab_size / 16, [=](int64_t r, Scratch&) {
    const int64_t num_top = std::min<int64_t>({rows.num_top.as<int32_t>()[r], out.top_ids.cols(), vocab_size});
    const LogprobRow row{RowLogits::whole(tiles.logits, r, vocab_size), tiles.max.row<float>(r), tiles.max.cols(),
                         vocab_size, RawSoftmax(tiles, r)};
    out.status.as<int32_t>()[r] = row.softmax.finite ? 0 : 1;
    if (num_top < 0 || !row.softmax.finite) return;
    const float logit = row.logits.at(rows.token_ids.as<int32_t>()[r]);
    out.logprobs.as<float>()[r] = row.softmax.logprob(logit);
    out.ranks.as<int32_t>()[r] = row.rank(logit);
    if (num_top == 0) return;
    int32_t* ids = out.top_ids.row<int32_t>(r);
    int32_t* ranks = out.top_ranks.row<int32_t>(r);
    const int32_t listed_slot = rows.listed_slots.as<int32_t>()[r];
    if (listed_slot >= 0) {
      std::copy_n(tables.listed_ids.row<int32_t>(listed_slot), num_top, ids);
    } else {
      row.most_likely(ids, num_top);
    }
    for (int64_t i = 0; i < num_top; ++i) {
      const float other = row.logits.at(ids[i]);
      out.top_logprobs.row<float>(r)[i] = row.softmax.logprob(other);
      if (listed_slot >= 0) {
        ranks[i] = row.rank(other);
      } else {
        const bool tied = i > 0 && other == row.logits.at(ids[i - 1]);
        ranks[i] = tied ? ranks[i - 1] : static_cast<int32_t>(i + 1);
      }
    }
  });
}

}  // namespace tokenmill::cpu
