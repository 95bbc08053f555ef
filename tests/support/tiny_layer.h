#pragma once
#include <memory>
#include <vector>

#include "tests/support/backends.h"
#include "tests/support/paged_sequences.h"

namespace tokenmill::test {

/// Two decoder layers and a head of random weights written straight over Ops: every operation of a step in its place.
class TinyLayers {
 public:
  TinyLayers(Ops& ops, DType dtype);
  static constexpr int64_t kVocab = 1300, kHidden = 48, kHeads = 4, kKvHeads = 2, kHeadDim = 12, kInner = 80;
  static constexpr int kNumLayers = 2;
  KvSpec kv_spec() const;
  /// Everything a step of a number of tokens writes.
  struct Activations {
    Activations(DType dtype, int64_t num_tokens);
    HostTensor token_ids, last_token, cos_sin, hidden, normed, qkv, attended, gate_up, inner, block_out, logits;
  };
  /// Enqueues one step over step's tokens, whose ids stand in a.token_ids; a.logits gets those of every token.
  void enqueue(const StepTensors& step, KvPool& pool, const Activations& a);
  /// The same with activations of its own, waited for.
  HostTensor run(const StepTensors& step, KvPool& pool, const std::vector<int32_t>& ids);

 private:
  struct Layer {
    std::unique_ptr<HostTensor> input_norm, post_norm;
    std::unique_ptr<TestLinear> qkv, o, gate_up, down;
  };
  std::unique_ptr<TestLinear> random_linear(int64_t out_features, int64_t in_features);
  std::unique_ptr<HostTensor> random_norm();

  Ops& ops_;
  DType dtype_;
  Random random_{77};
  std::vector<Layer> layers_;
  std::unique_ptr<HostTensor> final_norm_, table_, inv_freq_;
  std::unique_ptr<TestEmbedding> embedding_;
  std::unique_ptr<TestLinear> head_;
};

}  // namespace tokenmill::test
