#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/block_manager.h"
#include "engine/runner.h"
#include "engine/scheduler_options.h"
#include "engine/sequence.h"

namespace tokenmill {

/// How long the rows of this job become, from those that have finished.
class LengthPredictor {
 public:
  explicit LengthPredictor(int64_t first_guess) : quantile_(first_guess) {}
  /// A row has ended with so many generated tokens.
  void add(int64_t num_generated);
  /// Prompt and generated tokens that a sequence will hardly exceed: at least what it has, at most what it may have.
  int64_t predict(const Sequence& sequence) const;

 private:
  static constexpr int64_t kExact = 32;      // lengths below it have buckets of their own, above it 16 per octave
  static constexpr int64_t kFirstRows = 16;  // before so many have finished, the first guess stands
  static constexpr double kQuantile = 0.9;
  static size_t bucket_of(int64_t length);
  static int64_t longest_of(size_t bucket);

  std::array<int64_t, kExact + 16 * 58> counts_{};
  int64_t num_rows_ = 0;
  int64_t quantile_;
};

/// Decides whether a waiting sequence's blocks fit beside what the running ones will still take. A wrong prediction
/// costs a preemption, not correctness.
class Admission {
 public:
  Admission(const RunnerLimits& limits, const SchedulerOptions& options);

  LengthPredictor& lengths() { return lengths_; }
  /// Takes stock; before the first fits() of a step.
  void begin(const BlockManager& blocks, std::span<const std::unique_ptr<Sequence>> running);
  /// The blocks that the sequence will hold at its predicted peak, less those it shares, are there.
  bool fits(const BlockManager& blocks, const Sequence& sequence, const PrefixHit& hit) const;
  /// The sequence runs from now on; after its first blocks have been taken.
  void admitted(const BlockManager& blocks, const Sequence& sequence);

 private:
  int64_t peak_blocks(const BlockManager& blocks, int group, const Sequence& sequence) const;
  void commit(const BlockManager& blocks, const Sequence& sequence);

  double watermark_;
  int64_t max_chunk_;  // tokens of one sequence in a step
  int steps_in_flight_;
  LengthPredictor lengths_;
  std::vector<int64_t> committed_;  // per group: blocks that running sequences will still take
};

}  // namespace tokenmill
