#pragma once
#include <cstdint>
#include <vector>

#include "kernels/ops.h"
#include "tests/support/random.h"
#include "tests/support/reference_sampling.h"

namespace tokenmill::test {

/// R rows that a token is chosen for: their parameters and tables, and room for what is chosen and reported. Row r
/// belongs to slot R - 1 - r.
class SamplerRows {
 public:
  SamplerRows(Ops& ops, int64_t rows, int64_t vocab);

  /// Parameters, tables and masks of a row, with the ids it reports logprobs of instead of the most likely ones.
  void set(int64_t row, const reference::SamplerRow& params, const std::vector<int32_t>& listed_ids = {});
  void set_random(int64_t row, uint64_t key, int64_t position);
  void force(int64_t row, int32_t id) { forced_.set(0, row, id); }
  /// Others reported by report(); -1: nothing.
  void set_num_top(int64_t row, int64_t num_top) { num_top_.set(0, row, static_cast<double>(num_top)); }

  int64_t slot(int64_t row) const { return rows_ - 1 - row; }
  SamplingTables tables() const;
  LogitsRows rows() const;
  /// What pick() reads of a step.
  StepTensors step() const;
  PickResult picked() const { return {ids_, logprobs_, status_}; }
  /// Which logprobs of what was picked are wanted.
  LogprobRows wanted() const { return {ids_, num_top_, listed_slots_}; }
  /// Room for them, width columns, filled with -3.
  LogprobResult make_report(int64_t width);
  const LogprobResult& reported() const { return reported_; }

  int64_t id(int64_t row) const { return static_cast<int64_t>(ids_.get(0, row)); }
  double logprob(int64_t row) const { return logprobs_.get(0, row); }
  int64_t status(int64_t row) const { return static_cast<int64_t>(status_.get(0, row)); }
  int64_t last(int64_t row) const { return static_cast<int64_t>(last_.get(0, slot(row))); }
  int32_t count(int64_t row, int64_t id) const { return counts_.view().row<int32_t>(slot(row))[id]; }
  /// Every bit of the picks and reports, for comparison.
  std::vector<std::byte> bytes() const;

 protected:
  Ops& ops_;
  int64_t rows_, vocab_;

 private:
  HostTensor temperature_, top_p_, min_p_, top_k_, key_, last_, adjust_, presence_, frequency_, repetition_, listed_,
      counts_, bias_;
  HostTensor positions_, tokens_, slots_, forced_, num_top_, listed_slots_;
  HostTensor ids_, logprobs_, status_;
  std::vector<std::vector<int32_t>> masked_;  // per row
  VisibleVector<int32_t> masked_offsets_, masked_ids_;
  std::vector<HostTensor> report_storage_;
  LogprobResult reported_;
};

/// Parameters with their edge values as often as others. f32 holds all of them exactly.
reference::SamplerRow random_sampler_row(Random& random, int64_t vocab);

}  // namespace tokenmill::test
