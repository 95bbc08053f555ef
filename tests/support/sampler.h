#pragma once
#include <cstdint>
#include <vector>

#include "tests/support/backends.h"
#include "tests/support/reference_sampling.h"

namespace tokenmill::test {

/// R rows of logits through the head and the sampler. The hidden state is the logits themselves, the head the identity,
/// so that a row's logits are known exactly. Row r belongs to slot R - 1 - r.
class Sampler {
 public:
  /// padded_vocab - vocab ids are padding of the head.
  Sampler(Ops& ops, int64_t rows, int64_t vocab, int64_t padded_vocab);

  void set_logits(int64_t row, const std::vector<double>& logits);
  /// Parameters, tables and masks of a row, with the ids it reports logprobs of instead of the most likely ones.
  void set(int64_t row, const reference::SamplerRow& params, const std::vector<int32_t>& listed_ids = {});
  void set_random(int64_t row, uint64_t key, int64_t position);
  void force(int64_t row, int32_t id) { forced_.set(0, row, id); }
  /// Others reported by report(); -1: nothing.
  void set_num_top(int64_t row, int64_t num_top) { num_top_.set(0, row, static_cast<double>(num_top)); }

  void head();
  void pick();
  void run() {
    head();
    pick();
  }
  /// Logprobs of what was picked, width columns.
  void report(int64_t width);

  int64_t slot(int64_t row) const { return rows_ - 1 - row; }
  HeadTiles tiles() const { return {logits_, max_, sum_exp_, adjusted_max_, argmax_, sum_exp_t_, non_finite_}; }
  SamplingTables tables() const;
  LogitsRows rows() const;
  StepTensors step() const;
  PickResult picked() const { return {ids_, logprobs_, status_}; }
  int64_t id(int64_t row) const { return static_cast<int64_t>(ids_.get(0, row)); }
  double logprob(int64_t row) const { return logprobs_.get(0, row); }
  int64_t status(int64_t row) const { return static_cast<int64_t>(status_.get(0, row)); }
  int64_t last(int64_t row) const { return static_cast<int64_t>(last_.get(0, slot(row))); }
  int32_t count(int64_t row, int64_t id) const { return counts_.view().row<int32_t>(slot(row))[id]; }
  const LogprobResult& reported() const { return reported_; }
  /// Every bit of the picks and reports, for comparison.
  std::vector<std::byte> bytes() const;

 private:
  Ops& ops_;
  int64_t rows_, vocab_, num_tiles_;
  HostTensor hidden_, logits_, max_, sum_exp_, adjusted_max_, argmax_, sum_exp_t_, non_finite_;
  HostTensor temperature_, top_p_, min_p_, top_k_, key_, last_, adjust_, presence_, frequency_, repetition_, listed_,
      counts_, bias_;
  HostTensor positions_, tokens_, slots_, forced_, num_top_, listed_slots_;
  HostTensor ids_, logprobs_, status_;
  std::vector<std::vector<int32_t>> masked_;  // per row
  std::vector<int32_t> masked_offsets_, masked_ids_;
  std::vector<HostTensor> report_storage_;
  LogprobResult reported_;
  HostTensor identity_;
  TestLinear head_;
};

/// Parameters with their edge values as often as others. f32 holds all of them exactly.
reference::SamplerRow random_sampler_row(Random& random, int64_t vocab);

/// Values that f32 holds exactly, in [-spread, spread].
std::vector<double> random_logits(int64_t n, uint64_t seed, double spread);

}  // namespace tokenmill::test
