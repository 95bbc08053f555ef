#pragma once
#include <cstdint>
#include <vector>

#include "tests/support/backends.h"
#include "tests/support/sampler_rows.h"

namespace tokenmill::test {

/// Rows of logits through the head and the sampler. The hidden state is the logits themselves, the head the identity,
/// so that a row's logits are known exactly.
class Sampler : public SamplerRows {
 public:
  /// padded_vocab - vocab ids are padding of the head.
  Sampler(Ops& ops, int64_t rows, int64_t vocab, int64_t padded_vocab);

  void set_logits(int64_t row, const std::vector<double>& logits);
  void head();
  void pick();
  void run() {
    head();
    pick();
  }
  /// Logprobs of what was picked, width columns.
  void report(int64_t width);
  HeadTiles tiles() const { return {logits_, max_, sum_exp_, adjusted_max_, argmax_, sum_exp_t_, non_finite_}; }

 private:
  int64_t num_tiles_;
  HostTensor hidden_, logits_, max_, sum_exp_, adjusted_max_, argmax_, sum_exp_t_, non_finite_;
  HostTensor identity_;
  TestLinear head_;
};

/// Values that f32 holds exactly, in [-spread, spread].
std::vector<double> random_logits(int64_t n, uint64_t seed, double spread);

}  // namespace tokenmill::test
