#include "tests/support/tiny_layer.h"

#include <cmath>
#include <utility>

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

TinyLayers::Activations::Activations(DType dtype, int64_t t)
    : token_ids(DType::kI32, {t}),
      last_token(DType::kI32, {1}),
      cos_sin(DType::kF32, {t, kHeadDim}),
      hidden(dtype, {t, kHidden}),
      normed(dtype, {t, kHidden}),
      qkv(dtype, {t, (kHeads + 2 * kKvHeads) * kHeadDim}),
      attended(dtype, {t, kHeads * kHeadDim}),
      gate_up(dtype, {t, 2 * kInner}),
      inner(dtype, {t, kInner}),
      block_out(dtype, {t, kHidden}),
      logits(DType::kF32, {t, kVocab}) {}

void TinyLayers::enqueue(const StepTensors& step, KvPool& pool, const Activations& a) {
  ops_.plan(step);
  ops_.embed(a.hidden, embedding_->get(), a.token_ids, a.last_token);
  ops_.rope_angles(a.cos_sin, step.positions, *inv_freq_, 1);
  ops_.rms_norm(a.normed, a.hidden, *layers_[0].input_norm, 1e-5f);
  for (int i = 0; i < kNumLayers; ++i) {
    const Layer& layer = layers_[static_cast<size_t>(i)];
    ops_.linear(a.qkv, a.normed, layer.qkv->get());
    const int64_t q = kHeads * kHeadDim, kv = kKvHeads * kHeadDim;
    const TensorView& qkv = a.qkv;
    ops_.rope_and_store_kv(
        {.q = qkv.slice_cols(0, q), .k = qkv.slice_cols(q, kv), .v = qkv.slice_cols(q + kv, kv), .cos_sin = a.cos_sin},
        step, {&pool, i, 0});
    ops_.attention(a.attended, qkv.slice_cols(0, q), step, {&pool, i, 0}, {.scale = 0.3f});
    ops_.linear(a.block_out, a.attended, layer.o->get());
    ops_.add_rms_norm(a.normed, a.hidden, a.block_out, *layer.post_norm, 1e-5f);
    ops_.linear(a.gate_up, a.normed, layer.gate_up->get());
    ops_.gated_activation(a.inner, a.gate_up, Activation::kSilu);
    ops_.linear(a.block_out, a.inner, layer.down->get());
    const HostTensor& next = i + 1 < kNumLayers ? *layers_[static_cast<size_t>(i + 1)].input_norm : *final_norm_;
    ops_.add_rms_norm(a.normed, a.hidden, a.block_out, next, 1e-5f);
  }
  ops_.linear(a.logits, a.normed, head_->get());
}

HostTensor TinyLayers::run(const StepTensors& step, KvPool& pool, const std::vector<int32_t>& ids) {
  Activations a(dtype_, static_cast<int64_t>(ids.size()));
  for (size_t i = 0; i < ids.size(); ++i) a.token_ids.set(0, static_cast<int64_t>(i), ids[i]);
  enqueue(step, pool, a);
  ops_.stream().synchronize();
  return std::move(a.logits);
}

}  // namespace tokenmill::test
