#include "tests/support/sampler.h"

namespace tokenmill::test {
namespace {

HostTensor make_identity(int64_t n) {
  HostTensor w(DType::kF32, {n, n});
  w.fill(0);
  for (int64_t i = 0; i < n; ++i) w.set(i, i, 1);
  return w;
}

}  // namespace

Sampler::Sampler(Ops& ops, int64_t rows, int64_t vocab, int64_t padded_vocab)
    : SamplerRows(ops, rows, vocab),
      num_tiles_((padded_vocab + kVocabTile - 1) / kVocabTile),
      hidden_(DType::kF32, {rows, padded_vocab}),
      logits_(DType::kF32, {rows, padded_vocab}, 3),
      max_(DType::kF32, {rows, num_tiles_}),
      sum_exp_(DType::kF32, {rows, num_tiles_}),
      adjusted_max_(DType::kF32, {rows, num_tiles_}),
      argmax_(DType::kI32, {rows, num_tiles_}),
      sum_exp_t_(DType::kF32, {rows, num_tiles_}),
      non_finite_(DType::kI32, {rows, num_tiles_}),
      identity_(make_identity(padded_vocab)),
      head_(ops, identity_) {}

void Sampler::set_logits(int64_t row, const std::vector<double>& logits) {
  for (size_t i = 0; i < logits.size(); ++i) hidden_.set(row, static_cast<int64_t>(i), logits[i]);
}

void Sampler::head() {
  ops_.lm_head_tiles(tiles(), hidden_, head_.get(), 0, vocab_, rows(), tables());
  ops_.stream().synchronize();
}

void Sampler::pick() {
  ops_.pick(picked(), tiles(), vocab_, step(), tables());
  ops_.stream().synchronize();
}

void Sampler::report(int64_t width) {
  ops_.token_logprobs(make_report(width), tiles(), vocab_, wanted(), tables());
  ops_.stream().synchronize();
}

std::vector<double> random_logits(int64_t n, uint64_t seed, double spread) {
  Random random(seed);
  std::vector<double> logits;
  for (int64_t i = 0; i < n; ++i) logits.push_back(static_cast<float>(random.uniform(-spread, spread)));
  return logits;
}

}  // namespace tokenmill::test
