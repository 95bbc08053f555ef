#include "tests/support/tiny_layer.h"

#include <cmath>

namespace tokenmill::test {

TinyLayers::TinyLayers(Ops& ops, DType dtype) : ops_(ops), dtype_(dtype) {
  for (int i = 0; i < kNumLayers; ++i) {
    layers_.push_back({random_norm(), random_norm(), random_linear((kHeads + 2 * kKvHeads) * kHeadDim, kHidden),
                       random_linear(kHidden, kHeads * kHeadDim), random_linear(2 * kInner, kHidden),
                       random_linear(kHidden, kInner)});
  }
  final_norm_ = random_norm();
  table_ = std::make_unique<HostTensor>(dtype, std::initializer_list<int64_t>{kVocab, kHidden});
  table_->fill_random(random_);
  embedding_ = std::make_unique<TestEmbedding>(ops, *table_);
  head_ = random_linear(kVocab, kHidden);
  inv_freq_ = std::make_unique<HostTensor>(DType::kF32, std::initializer_list<int64_t>{kHeadDim / 2});
  for (int64_t i = 0; i < kHeadDim / 2; ++i) inv_freq_->set(0, i, std::pow(100.0, -static_cast<double>(i) / 6));
}

KvSpec TinyLayers::kv_spec() const {
  return {.num_layers = kNumLayers, .num_kv_heads = kKvHeads, .k_dim = kHeadDim, .v_dim = kHeadDim, .dtype = dtype_};
}

std::unique_ptr<TestLinear> TinyLayers::random_linear(int64_t out_features, int64_t in_features) {
  HostTensor w(dtype_, {out_features, in_features});
  const double spread = 1.5 / std::sqrt(static_cast<double>(in_features));
  w.fill_random(random_, -spread, spread);
  return std::make_unique<TestLinear>(ops_, w);
}

std::unique_ptr<HostTensor> TinyLayers::random_norm() {
  auto norm = std::make_unique<HostTensor>(dtype_, std::initializer_list<int64_t>{kHidden});
  norm->fill_random(random_, 0.5, 1.5);
  return norm;
}

HostTensor TinyLayers::run(const StepTensors& step, KvPool& pool, const std::vector<int32_t>& ids) {
  const auto t = static_cast<int64_t>(ids.size());
  HostTensor hidden(dtype_, {t, kHidden}), normed(dtype_, {t, kHidden}), qkv(dtype_, {t, (kHeads + 2 * kKvHeads) * kHeadDim}),
      attended(dtype_, {t, kHeads * kHeadDim}), gate_up(dtype_, {t, 2 * kInner}), inner(dtype_, {t, kInner}),
      block_out(dtype_, {t, kHidden}), cos_sin(DType::kF32, {t, kHeadDim}), token_ids(DType::kI32, {t}),
      last_token(DType::kI32, {1}), logits(DType::kF32, {t, kVocab});
  for (int64_t i = 0; i < t; ++i) token_ids.set(0, i, ids[static_cast<size_t>(i)]);
  ops_.plan(step);
  ops_.embed(hidden, embedding_->get(), token_ids, last_token);
  ops_.rope_angles(cos_sin, step.positions, *inv_freq_, 1);
  ops_.rms_norm(normed, hidden, *layers_[0].input_norm, 1e-5f);
  for (int i = 0; i < kNumLayers; ++i) {
    const Layer& layer = layers_[static_cast<size_t>(i)];
    ops_.linear(qkv, normed, layer.qkv->get());
    const int64_t q = kHeads * kHeadDim, kv = kKvHeads * kHeadDim;
    const TensorView queries = qkv.view().slice_cols(0, q);
    ops_.rope_and_store_kv({.q = queries, .k = qkv.view().slice_cols(q, kv), .v = qkv.view().slice_cols(q + kv, kv),
                            .cos_sin = cos_sin},
                           step, {&pool, i, 0});
    ops_.attention(attended, queries, step, {&pool, i, 0}, {.scale = 0.3f});
    ops_.linear(block_out, attended, layer.o->get());
    ops_.add_rms_norm(normed, hidden, block_out, *layer.post_norm, 1e-5f);
    ops_.linear(gate_up, normed, layer.gate_up->get());
    ops_.gated_activation(inner, gate_up, Activation::kSilu);
    ops_.linear(block_out, inner, layer.down->get());
    const HostTensor& next = i + 1 < kNumLayers ? *layers_[static_cast<size_t>(i + 1)].input_norm : *final_norm_;
    ops_.add_rms_norm(normed, hidden, block_out, next, 1e-5f);
  }
  ops_.linear(logits, normed, head_->get());
  ops_.stream().synchronize();
  return logits;
}

}  // namespace tokenmill::test
