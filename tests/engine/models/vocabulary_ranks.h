#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "engine/models/vocabulary_shard.h"
#include "tests/support/backends.h"
#include "tests/support/sampler_rows.h"

namespace tokenmill::test {

using Bytes = std::vector<std::byte>;

/// The weights of both ends of a model, and the hidden states that its head is given.
struct Ends {
  Ends(int64_t vocab, int64_t hidden, int64_t rows, DType dtype = DType::kF32);
  int64_t vocab() const { return config.vocab_size; }
  int64_t rows() const { return normed.view().rows(); }
  DType dtype() const { return table.view().dtype(); }
  ModelConfig config;
  HostTensor table, head, normed;
};

/// One rank's share of them.
class Rank {
 public:
  Rank(const Ends& ends, Ops& ops, parallel::Communicator& tp, int64_t max_rows);

  /// Rows [begin, begin + R) of the hidden states; shortlist as LogitsRows::shortlist, width: of the report, -1: none.
  void choose(SamplerRows& rows, int64_t begin, int64_t shortlist, int64_t width = -1);
  void score(SamplerRows& rows, int64_t width);
  const VocabularyShard& vocabulary() const { return *vocabulary_; }
  const ModelShard& shard() const { return shard_; }
  Ops& ops() { return ops_; }
  parallel::Communicator& tp() { return tp_; }

 private:
  Ops& ops_;
  parallel::Communicator& tp_;
  const Ends& ends_;
  WeightCatalog catalog_;
  ModelShard shard_;
  std::unique_ptr<WeightBuilder> builder_;
  std::unique_ptr<VocabularyShard> vocabulary_;
  Buffer weights_, activations_;
  HeadActivations head_;
};

/// body(rank) on every rank of a group of tp CPU ranks, each with room for max_rows rows.
void on_ranks(const Ends& ends, int tp, int64_t max_rows, const std::function<void(Rank&)>& body);

/// What every rank of tp has, which must be the same on all.
Bytes result_of(const Ends& ends, int tp, const std::function<void(Rank&, Bytes&)>& body);

}  // namespace tokenmill::test
